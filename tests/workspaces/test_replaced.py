"""What lies in a git directory and leads elsewhere, or is changed after it was looked at: nothing goes there."""

from __future__ import annotations

import os
import shlex
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from postroom.errors import Conflict, InvalidInput, PostroomError
from postroom.settings import Settings
from postroom.workers.workspaces import program
from postroom.workers.workspaces.git import Git
from postroom.workers.workspaces.layout import NotLent
from postroom.workers.workspaces.program import GitFailed
from postroom.workers.workspaces.service import Workspaces
from postroom.workers.workspaces.showing import difference
from postroom.workers.workspaces.taking import merge
from tests.workspaces.bench import Bench, Who, git, repository
from tests.workspaces.planting import Plant

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("workspace-git-closed")]

NEXT = Who("d" * 32, "next")
WORK = "for n in $(seq 1 30); do echo more > $n.txt; done"


async def merged(bench: Bench, app: Path) -> None:
    """Some work of a worker, in the repository and in what the person has checked out."""
    await bench.work(await bench.begin(app), WORK)
    held = await bench.bring()
    await merge(bench.spaces.store(Who().uid, held), held)


@pytest.mark.parametrize("log", ["HEAD", "refs/heads/main", "refs/heads/postroom/coder"])
async def test_no_line_is_written_to_what_a_log_of_a_branch_leads_to(
    bench: Bench, tmp_path: Path, log: str
):
    app, outside = repository(tmp_path / "app"), tmp_path / "outside"
    outside.write_text("{}")
    path = app / ".git" / "logs" / log
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.symlink_to(outside)
    await merged(bench, app)
    assert outside.read_text() == "{}"


async def test_no_line_is_written_by_a_folder_of_logs_that_leads_elsewhere(
    bench: Bench, tmp_path: Path
):
    app = repository(tmp_path / "app")
    logs = app / ".git" / "logs"
    (logs / "refs" / "heads").rename(tmp_path / "outside")
    (logs / "refs" / "heads").symlink_to(tmp_path / "outside")
    before = (tmp_path / "outside" / "main").read_text()
    await merged(bench, app)
    assert (tmp_path / "outside" / "main").read_text() == before


async def test_a_merge_is_in_the_logs_of_the_person(bench: Bench, tmp_path: Path):
    app = repository(tmp_path / "app")
    await merged(bench, app)
    for name in ("main", "HEAD"):
        assert "merge postroom/coder" in git(app, "reflog", "-1", name)


async def test_what_is_staged_is_not_written_to_another_place(bench: Bench, tmp_path: Path):
    app, outside = repository(tmp_path / "app"), tmp_path / "outside"
    (app / ".git" / "index").rename(outside)
    (app / ".git" / "index").symlink_to(outside)
    before = outside.read_bytes()
    with pytest.raises(PostroomError, match="no plain file"):
        await merged(bench, app)
    assert outside.read_bytes() == before


async def test_no_branch_is_written_to_a_folder_that_a_name_leads_to(bench: Bench, tmp_path: Path):
    app, outside = repository(tmp_path / "app"), tmp_path / "outside"
    outside.mkdir()
    (app / ".git" / "refs" / "heads" / "x").symlink_to(outside)
    (app / ".git" / "HEAD").write_text("ref: refs/heads/x/authorized_keys\n")
    (app / ".git" / "index").unlink()
    (app / "a.txt").unlink()
    with pytest.raises(PostroomError, match="is a link"):
        await merged(bench, app)
    assert not [*outside.iterdir()]


async def test_an_index_in_parts_is_whole_after_a_merge(bench: Bench, tmp_path: Path):
    app = repository(tmp_path / "app")
    git(app, "update-index", "--split-index")
    await merged(bench, app)
    assert git(app, "status", "--porcelain") == ""
    assert git(app, "ls-files").count(".txt") == 31


async def test_no_program_of_a_folder_that_a_command_runs_in_is_taken_for_git(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    app, canary = repository(tmp_path / "app"), tmp_path / "canary"
    (app / "bin").mkdir()
    (app / "bin" / "git").write_text(f"#!/bin/sh\ntouch {canary}\n")
    (app / "bin" / "git").chmod(0o755)
    monkeypatch.chdir(app)
    monkeypatch.setenv("PATH", "bin::.:" + os.environ["PATH"])
    await merged(bench, app)
    assert not canary.exists()


async def test_git_of_the_host_takes_nothing_of_the_environment_that_postroom_was_started_in(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    app, plant = repository(tmp_path / "app"), Plant(tmp_path / "planted", tmp_path / "canary")
    (app / ".gitattributes").write_text("* diff=evil filter=evil\n")
    git(app, "add", "-A")
    git(app, "commit", "-qm", "attributes")
    programs = (
        "EXTERNAL_DIFF",
        "SSH_COMMAND",
        "SSH",
        "EDITOR",
        "PAGER",
        "PROXY_COMMAND",
        "ASKPASS",
    )
    evil = {f"GIT_{name}": str(plant.evil) for name in programs}
    evil |= {"GIT_DIR": str(tmp_path), "GIT_WORK_TREE": "/", "GIT_INDEX_FILE": "/dev/null"}
    evil |= {"GIT_EXEC_PATH": str(plant.hooks), "GIT_TEMPLATE_DIR": str(plant.hooks)}
    evil |= {"GIT_OBJECT_DIRECTORY": str(tmp_path), "GIT_COMMON_DIR": str(tmp_path)}
    evil |= {"GIT_TRACE": str(plant.canary), "GIT_NAMESPACE": "x", "GIT_GRAFT_FILE": "/dev/zero"}
    evil |= {"GIT_CONFIG_PARAMETERS": f"'core.fsmonitor'='{plant.evil}'"}
    evil |= {"GIT_CONFIG_COUNT": "2", "GIT_CONFIG_KEY_0": "core.fsmonitor"}
    evil |= {"GIT_CONFIG_VALUE_0": str(plant.evil), "GIT_CONFIG_KEY_1": "filter.evil.clean"}
    evil |= {"GIT_CONFIG_VALUE_1": str(plant.evil), "GIT_REPLACE_REF_BASE": "refs/heads/"}
    with monkeypatch.context() as started:
        for name, value in evil.items():
            started.setenv(name, value)
        await bench.work(await bench.begin(app), WORK)
        held = await bench.bring()
        store = bench.spaces.store(Who().uid, held)
        assert (await difference(store, held)).files == 30
    assert not plant.ran()
    assert git(app, "diff", "--name-only", "main", held.branch).count("txt") == 30


async def test_one_object_of_a_stranger_fills_no_memory(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    app = repository(tmp_path / "app")
    (tmp_path / "large").write_text("a" * (4 << 20))
    made = git(app, "commit-tree", "HEAD^{tree}", "-F", str(tmp_path / "large"))
    words = ("log", "-1", "--format=%s", made)
    assert await Git(app).run(*words)
    monkeypatch.setitem(program._SHELL, "GIT_ALLOC_LIMIT", "1m")
    with pytest.raises(GitFailed, match="limit"):
        await Git(app).run(*words)


async def test_a_repository_that_another_worker_could_replace_meanwhile_gets_none(
    bench: Bench, tmp_path: Path
):
    app = repository(tmp_path / "app")
    lib = repository(app / "lib")
    git(app, "worktree", "add", "-q", "../linked")
    await bench.begin(app, "direct")
    for mode in ("worktree", "copy"):
        with pytest.raises(Conflict, match="around what git keeps"):
            await bench.begin(lib, mode, NEXT)
    await bench.begin(app, "worktree", NEXT)  # its .git is the one that stays where it is
    await bench.begin(tmp_path / "linked", "worktree", Who("e" * 32, "third"))


async def test_no_worker_gets_a_folder_around_a_repository_that_another_one_works_on(
    bench: Bench, tmp_path: Path
):
    folder = tmp_path / "folder"
    await bench.begin(repository(folder / "lib"), "worktree")
    other = Workspaces(replace(Settings(state=bench.state), org="acme"))
    with pytest.raises(Conflict, match="inside of"):
        await bench.begin(folder, "direct", NEXT)
    bench.spaces = other  # of another organisation
    with pytest.raises(Conflict, match="inside of"):
        await bench.begin(folder, "direct", NEXT)


async def test_no_worker_writes_where_the_git_directories_of_commands_are_made(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    app = repository(tmp_path / "app")
    (app / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(app / "tmp"))
    with pytest.raises(InvalidInput, match="TMPDIR"):
        await bench.begin(app, "direct")
    await bench.begin(app, "worktree")


@pytest.mark.requirement("workspace-lends-objects-alone")
async def test_objects_that_a_repository_borrows_later_are_lent_to_nobody(
    bench: Bench, tmp_path: Path
):
    private, app = repository(tmp_path / "private"), repository(tmp_path / "app")
    (private / "secret").write_text("secret\n")
    git(private, "add", ".")
    git(private, "commit", "-qm", "private")
    known = git(private, "rev-parse", "HEAD")
    placed = await bench.begin(app)
    alternates = app / ".git" / "objects" / "info" / "alternates"
    alternates.write_text(f"{private}/.git/objects\n")
    await bench.work(
        placed,
        f"echo /opt/borrowed/1 >> .git/objects/info/alternates; echo {known} > .git/HEAD",
    )
    with pytest.raises(Conflict, match="borrows objects from"):
        await bench.bring()
    bench.again()
    with pytest.raises(Conflict, match="borrows objects from"):
        await bench.begin(app)
    alternates.unlink()
    git(app, "cat-file", "-e", known, code=1)


@pytest.mark.requirement("workspace-git-closed")
async def test_settings_that_included_ones_include_are_closed_to_a_worker(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    app, home = repository(tmp_path / "app"), tmp_path / "home"
    (app / "sub").mkdir()
    home.mkdir()
    texts = {"shared": "[include]\n\tpath = sub/more\n", "sub/more": "", "mine": "", "global": ""}
    for name, text in texts.items():
        (app / name).write_text(text)
    git(app, "config", "include.path", "../shared")
    (home / ".gitconfig").symlink_to(app / "global")
    (app / "global").write_text("[include]\n\tpath = ../app/mine\n")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("GIT_CONFIG_GLOBAL", raising=False)
    placed = await bench.begin(app, "direct")
    said = await bench.work(
        placed, "for f in shared sub/more mine global; do (echo x >> $f) 2>&1 || true; done"
    )
    assert said.count("Read-only file system") == 4


async def test_a_folder_too_deep_to_be_looked_into_is_named_and_given_to_no_further_worker(
    bench: Bench, tmp_path: Path
):
    app = repository(tmp_path / "app")
    placed = await bench.begin(app, "direct")
    code = (
        "import os\nfor _ in range(20): os.mkdir('x' * 250); os.chdir('x' * 250)\nos.mkdir('.git')"
    )
    await bench.work(placed, f'/usr/bin/env python3 -c "{code}"')
    assert any(name.startswith("xxx") for name in (await bench.bring()).made)
    await bench.spaces.forget(Who().uid)
    with pytest.raises(PostroomError, match="too deep"):
        await bench.begin(app, "direct", NEXT)


@pytest.mark.parametrize("name", ["shallow", "info/attributes"])
async def test_a_file_of_a_git_directory_that_is_none_is_refused_in_words(
    bench: Bench, tmp_path: Path, name: str
):
    app = repository(tmp_path / "app")
    (app / ".git" / name).mkdir(parents=True)
    with pytest.raises(PostroomError):
        await merged(bench, app)


@pytest.mark.parametrize("way", ["linked", "elsewhere"])
async def test_a_command_that_is_proposed_has_each_name_in_one_word(
    bench: Bench, tmp_path: Path, way: str
):
    app, evil = tmp_path / "app", repository(tmp_path / "x; touch evil #")
    app.mkdir()
    (app / ".git").write_text(f"gitdir: {evil}/.git\n")
    if way == "linked":
        folder = evil / ".git" / "worktrees" / "x"
        folder.mkdir(parents=True)
        (folder / "HEAD").write_text("ref: refs/heads/main\n")
        (folder / "commondir").write_text("../..\n")
        (app / ".git").write_text(f"gitdir: {folder}\n")
    with pytest.raises(NotLent) as error:
        await bench.begin(app)
    assert any(f"{evil}/.git" in word for word in shlex.split(error.value.remedy))
