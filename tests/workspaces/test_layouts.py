"""Folders that are made to look like a repository, and objects that no git would make: nothing else is lent."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from postroom.errors import Conflict, InvalidInput, PostroomError
from postroom.workers.workspaces.showing import difference
from postroom.workers.workspaces.taking import merge
from tests.workspaces.bench import FREE, QUIET, Bench, Who, git, repository

pytestmark = pytest.mark.anyio

NEXT = Who("d" * 32, "next")
LAYOUT = """
mkdir -p {place}/objects/info {place}/refs/heads
echo 'ref: refs/heads/main' > {place}/HEAD
printf '[core]\\n\\trepositoryformatversion = 0\\n\\tfsmonitor = {evil}\\n\\tworktree = /\\n' > {place}/config
"""
"""What a worker writes to make a folder a git directory, without git."""


def secret_folder(tmp_path: Path, name: str) -> Path:
    folder = tmp_path / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "key").write_text("secret\n")
    return folder


def look_there(folder: Path) -> None:
    """As the prompt of a person's shell does it."""
    subprocess.run(["git", "status"], cwd=folder, env=os.environ | QUIET, check=False)


async def refused(bench: Bench, folder: Path) -> list[str]:
    """What is said to whoever wants another worker there, in any mode that borrows."""
    said = []
    for mode in ("", "worktree", "direct"):
        with pytest.raises(InvalidInput) as error:
            await bench.begin(folder, mode, NEXT)
        said.append(error.value.message)
    return said


@pytest.mark.requirement("workspace-lends-objects-alone")
@pytest.mark.parametrize("name", [".ssh", "plain", "state", "objects", "home/objects"])
@pytest.mark.parametrize("way", ["alternates", "quoted", "relative", "twice", "link"])
async def test_a_folder_that_is_none_of_gits_objects_is_lent_to_nobody(
    bench: Bench, tmp_path: Path, name: str, way: str
):
    app = repository(tmp_path / "app")
    folder = bench.state if name == "state" else secret_folder(tmp_path, name)
    info = app / ".git" / "objects" / "info"
    line = {"quoted": f'"{folder}"', "relative": os.path.relpath(folder, info.parent)}.get(
        way, str(folder)
    )
    if way == "twice":
        other = repository(tmp_path / "other")
        (other / ".git" / "objects" / "info" / "alternates").write_text(f"{folder}\n")
        line = f"{other}/.git/objects"
    if way == "link":
        (app / ".git" / "objects").rename(tmp_path / "aside")
        (app / ".git" / "objects").symlink_to(folder)
    else:
        (info / "alternates").write_text(f"{line}\n")
    await refused(bench, app)
    if way == "alternates":  # the files alone can be had
        placed = await bench.begin(app, "copy", NEXT)
        said = await bench.work(placed, "cat a.txt; ls -R /opt 2>&1 | grep key || true")
        assert said == "one\n"


@pytest.mark.requirement("workspace-lends-objects-alone")
@pytest.mark.parametrize("place", ["/proc/self", "/etc/ssl/private", "~/.ssh", "~"])
async def test_a_place_that_no_sandbox_is_shown_is_not_lent_as_objects_either(
    bench: Bench, tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    folder = Path(place).expanduser()
    if place.startswith("~"):
        folder = folder / "objects"
        (folder / "pack").mkdir(parents=True)
    app = repository(tmp_path / "app")
    (app / ".git" / "objects" / "info" / "alternates").write_text(f"{folder}\n")
    if (
        place == "~"
    ):  # by its name and what is in it a folder of objects: the spawn says that it is lent
        placed = await bench.begin(app, "", NEXT)
        held = bench.spaces.held(NEXT.uid)
        assert held is not None
        assert any(str(folder) in note for note in held.notes)
        assert len(placed.mounts) >= 2
    else:
        await refused(bench, app)


@pytest.mark.requirement("workspace-lends-objects-alone")
@pytest.mark.parametrize("how", ["file", "link", "commondir", "worktrees"])
async def test_a_repository_is_lent_by_another_folder_only_if_it_says_so_itself(
    bench: Bench, tmp_path: Path, how: str
):
    private = repository(tmp_path / "private")
    app = tmp_path / "app"
    app.mkdir()
    if how == "file":
        (app / ".git").write_text(f"gitdir: {private}/.git\n")
    elif how == "link":
        (app / ".git").symlink_to(private / ".git")
    else:
        own = app / ".git" if how == "commondir" else app / ".git" / "worktrees" / "x"
        own.mkdir(parents=True)
        (own / "HEAD").write_text("ref: refs/heads/main\n")
        (own / "commondir").write_text(f"{private}/.git\n")
        (own / "gitdir").write_text(f"{app}/.git\n")
        if how == "worktrees":
            (app / ".git").rename(app / "kept")
            (app / ".git").write_text("gitdir: kept/worktrees/x\n")
    await refused(bench, app)
    assert git(private, "branch", "--list", "postroom/*") == ""
    if how == "file":
        git(private, "config", "core.worktree", str(app))
        await bench.begin(app, "", NEXT)
        held = bench.spaces.held(NEXT.uid)
        assert held is not None
        assert f"it reads all that git keeps in {private}/.git/objects" in held.notes


@pytest.mark.requirement("workspace-git-closed")
@pytest.mark.requirement("workspace-lends-objects-alone")
async def test_a_folder_that_a_worker_made_a_git_directory_is_named_and_lent_to_nobody(
    bench: Bench, tmp_path: Path
):
    folder, canary = secret_folder(tmp_path, "notes"), tmp_path / "canary"
    evil = folder / "evil.sh"
    placed = await bench.begin(folder, "direct")
    await bench.work(
        placed,
        f"printf '#!/bin/sh\\ntouch {canary}\\n' > evil.sh; chmod +x evil.sh;"
        + LAYOUT.format(place=".", evil=evil)
        + f"echo {bench.state} > objects/info/alternates;"
        + LAYOUT.format(place="lib", evil=evil)
        + "mkdir link; echo 'ref: refs/heads/main' > link/HEAD; echo ../lib > link/commondir",
    )
    # While the worker is there, git of the person's finds nothing in the folder itself.
    look_there(folder)
    assert not canary.exists()
    held = await bench.bring()
    assert {".", "lib", "link"} <= {*held.made}
    assert {".", "lib", "link"} <= {*held.left}
    await bench.spaces.forget(Who().uid)
    for place in (folder, folder / "lib"):
        for mode in ("", "copy", "direct"):
            with pytest.raises(InvalidInput, match="git directory"):
                await bench.begin(place, mode, NEXT)
    assert not canary.exists()
    look_there(folder)
    assert canary.exists()  # the layout is a good one


@pytest.mark.requirement("workspace-git-closed")
async def test_a_folder_that_git_takes_for_a_git_directory_is_closed_to_a_worker_as_it_is(
    bench: Bench, tmp_path: Path
):
    app = repository(tmp_path / "app")
    git(app, "clone", "-q", "--bare", ".", "tests/fixture")
    (app / "shared").write_text("[user]\n\tname = Ann\n")
    git(app, "config", "include.path", "../shared")
    placed = await bench.begin(app, "direct")
    said = await bench.work(
        placed,
        "(echo x >> tests/fixture/config) 2>&1 || true; rm -rf tests/fixture/hooks 2>&1 || true;"
        " mv tests/fixture elsewhere 2>&1 || true; (echo x >> shared) 2>&1 || true; echo x > new",
    )
    assert said.count("Read-only file system") + said.count("busy") >= 4
    assert "fixture" not in str((await bench.bring()).made)


@pytest.mark.requirement("workspace-git-closed")
async def test_a_nested_git_directory_that_a_worker_made_runs_nothing_at_the_next_spawn_there(
    bench: Bench, tmp_path: Path
):
    app, canary = repository(tmp_path / "app"), tmp_path / "canary"
    placed = await bench.begin(app, "direct")
    evil = app / "evil.sh"
    await bench.work(
        placed,
        f"printf '#!/bin/sh\\ntouch {canary}\\n' > evil.sh; chmod +x evil.sh; mkdir lib; cd lib;"
        " git init -q .; git config user.name x; git config user.email x; echo 1 > a.txt;"
        " echo '* filter=a=b' > .gitattributes; git add .; git commit -qm x; echo 2 > a.txt;"
        f" git config filter.a=b.clean {evil}; git config protocol.ext.allow always;"
        f" git config 'url.ext::{evil} .insteadOf' /; git config core.fsmonitor {evil}",
    )
    assert "lib/.git" in (await bench.bring()).made
    with pytest.raises(Conflict):  # it could still change it
        await bench.begin(app / "lib", "worktree", NEXT)
    await bench.spaces.forget(Who().uid)
    placed = await bench.begin(app / "lib", "worktree", NEXT)
    await bench.work(placed, "echo 3 > new.txt; git add -A; git commit -qm y")
    held = await bench.bring(NEXT)
    await difference(bench.spaces.store(NEXT.uid, held), held)
    assert git(app / "lib", "log", "-1", "--format=%s", "postroom/next") == "y"
    assert not canary.exists()


BROKEN = {
    "hooks in a tree": "t=$(git hash-object -w a.txt | sed 's/^/100644 blob /;s/$/\\tpost-checkout/'"
    " | git mktree); t=$(printf '040000 tree %s\\thooks\\n' $t | git mktree);"
    " t=$(printf '040000 tree %s\\t.git\\n' $t | git mktree)",
    "an update of a submodule": "printf '[submodule \"x\"]\\n\\tpath = x\\n\\turl = y\\n\\tupdate = !id\\n'"
    " > .gitmodules; git add .gitmodules; t=$(git write-tree)",
    "a path that leads out": 'b=$(git hash-object -w a.txt); python3 -c "import sys;'
    " sys.stdout.buffer.write(b'100644 ..\\\\0' + bytes.fromhex('$b'))\" > /tmp/tree;"
    " t=$(git hash-object -t tree -w --literally /tmp/tree)",
    "an option for a url": "printf '[submodule \"x\"]\\n\\tpath = -x\\n\\turl = --upload-pack=id\\n'"
    " > .gitmodules; git add .gitmodules; t=$(git write-tree)",
}


@pytest.mark.requirement("workspace-lends-objects-alone")
@pytest.mark.parametrize("script", BROKEN.values(), ids=BROKEN)
async def test_objects_that_no_git_would_make_do_not_come_back(
    bench: Bench, tmp_path: Path, script: str
):
    app = repository(tmp_path / "app")
    placed = await bench.begin(app)
    commit = "; git update-ref HEAD $(git commit-tree -m x -p HEAD $t)"
    await bench.work(placed, script + commit)
    with pytest.raises(PostroomError, match="index-pack"):
        await bench.bring()
    assert git(app, "branch", "--list", "postroom/*") == ""
    assert git(app, "fsck", "--strict", "--no-progress") == ""
    assert not [*(app / ".git" / "objects" / "pack").iterdir()]
    assert not [*(app / ".git" / "objects").glob("tmp*")]


@pytest.mark.requirement("workspace-git-closed")
async def test_a_branch_that_brings_a_git_directory_is_named_and_not_merged(
    bench: Bench, tmp_path: Path
):
    app = repository(tmp_path / "app")
    placed = await bench.begin(app)
    await bench.work(
        placed, LAYOUT.format(place="lib", evil="x") + "touch lib/objects/x lib/refs/x; git add -A"
    )
    held = await bench.bring()
    assert held.made == ("lib",)
    with pytest.raises(Conflict, match="lib"):
        await merge(bench.spaces.store(Who().uid, held), held)
    assert not (app / "lib").exists()


@pytest.mark.parametrize("version", ["2.25.1", "1.9", "2.31.9 (Apple Git-1)"])
async def test_a_git_that_is_too_old_is_refused(
    bench: Bench, tmp_path: Path, version: str, monkeypatch: pytest.MonkeyPatch
):
    program = tmp_path / "bin" / "git"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho 'git version {version}'\n")
    program.chmod(0o755)
    app = repository(tmp_path / "app")
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    with pytest.raises(InvalidInput, match=r"git 2\.32 or later"):
        await bench.spaces.plan(str(app), "", bench.provider, FREE)
