"""What a person sees of a worker's work, and takes over."""

from __future__ import annotations

from pathlib import Path

import pytest

from postroom.errors import Conflict, PostroomError
from postroom.workers.workspaces import showing
from postroom.workers.workspaces.showing import difference
from postroom.workers.workspaces.taking import merge
from tests.workspaces.bench import FREE, Bench, Who, git, repository

pytestmark = pytest.mark.anyio


async def _done(bench: Bench, app: Path) -> None:
    await bench.work(await bench.begin(app), "echo two >> a.txt; git commit -qam second")


def _dirty(app: Path) -> None:
    (app / "a.txt").write_text("mine\n")


def _conflicting(app: Path) -> None:
    _dirty(app)
    git(app, "commit", "-qam", "mine")


def _filtered(app: Path) -> None:
    git(app, "config", "filter.own.smudge", "./smudge.sh")
    (app / ".gitattributes").write_text("*.txt filter=own\n")
    git(app, "add", ".gitattributes")
    git(app, "commit", "-qm", "mine")


def _merging(app: Path) -> None:
    (app / ".git" / "MERGE_HEAD").write_text(git(app, "rev-parse", "HEAD") + "\n")


@pytest.mark.parametrize("prepare", [_dirty, _conflicting, _filtered, _merging])
async def test_a_merge_that_needs_a_person_is_left_to_them_and_changes_nothing(
    bench: Bench, tmp_path: Path, prepare: object
):
    app = repository(tmp_path / "app")
    await _done(bench, app)
    assert callable(prepare)
    prepare(app)
    before = (git(app, "rev-parse", "HEAD"), (app / "a.txt").read_text())
    held = await bench.bring()
    with pytest.raises(Conflict) as refused:
        await merge(bench.spaces.store(Who().uid, held), held)
    assert refused.value.remedy
    assert (git(app, "rev-parse", "HEAD"), (app / "a.txt").read_text()) == before


async def test_a_merge_runs_no_hook_that_the_branch_could_have_changed(
    bench: Bench, tmp_path: Path
):
    app = repository(tmp_path / "app")
    git(app, "config", "core.hooksPath", "hooks")
    hook = "mkdir hooks; for h in post-merge pre-merge-commit commit-msg post-checkout; do"
    script = f"printf '#!/bin/sh\\ntouch {tmp_path}/canary\\n' > hooks/$h; chmod +x hooks/$h; done"
    await bench.work(await bench.begin(app), f"{hook} {script}")
    held = await bench.bring()
    await merge(bench.spaces.store(Who().uid, held), held)
    assert (app / "hooks" / "post-merge").exists()
    assert not (tmp_path / "canary").exists()
    git(app, "commit", "-q", "--allow-empty", "-m", "x")
    assert (tmp_path / "canary").exists()  # the hooks are good ones


async def test_a_diff_is_bounded_and_takes_paths_as_they_stand(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    app = repository(tmp_path / "app")
    placed = await bench.begin(app)
    await bench.work(placed, "seq 9999 > many.txt; echo x > '*.txt'; echo y > --output=z")
    held = await bench.bring()
    store = bench.spaces.store(Who().uid, held)
    assert (await difference(store, held, ["*.txt"])).files == 1
    assert (await difference(store, held, ["--output=z"])).files == 1
    with pytest.raises(PostroomError):
        await difference(store, held, ["../outside"])
    monkeypatch.setattr(showing, "MOST_TEXT", 1000)
    found = await difference(store, held)
    assert (found.cut, len(found.text), found.files) == (True, 1000, 3)


async def test_a_branch_that_a_person_is_on_does_not_move_and_the_work_is_not_lost(
    bench: Bench, tmp_path: Path
):
    app = repository(tmp_path / "app")
    await _done(bench, app)
    await bench.bring()
    git(app, "switch", "-q", "postroom/coder")
    placed = await bench.spaces.ready(Who(), str(app), "worktree", bench.provider, None, FREE)
    await bench.work(placed, "echo three >> a.txt; git commit -qam third")
    with pytest.raises(Conflict, match="checked out"):
        await bench.bring()
    assert (app / "a.txt").read_text() == "one\ntwo\n"
    assert git(app, "status", "--porcelain") == ""
    git(app, "switch", "-q", "main")
    await bench.bring()
    assert git(app, "log", "-1", "--format=%s", "postroom/coder") == "third"


@pytest.mark.parametrize("linked", [False, True])
async def test_a_merge_of_two_sides_is_the_persons_and_runs_and_signs_nothing(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, linked: bool
):
    app, canary = repository(tmp_path / "app"), tmp_path / "canary"
    evil = tmp_path / "evil.sh"
    evil.write_text(f"#!/bin/sh\ntouch {canary}\n")
    evil.chmod(0o755)
    own = tmp_path / "gitconfig"
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(own))
    own.write_text(f"[commit]\n\tgpgSign = true\n[gpg]\n\tprogram = {evil}\n")
    if linked:
        git(app, "worktree", "add", "-q", "-b", "side", "../linked")
        app = tmp_path / "linked"
    git(app, "pack-refs", "--all")
    await _done(bench, app)
    (app / "mine.txt").write_text("mine")
    git(app, "add", ".")
    git(app, "commit", "-qm", "mine")
    held = await bench.bring()
    assert "its commits are not signed, nor is a merge by task apply --merge" in held.notes
    store = bench.spaces.store(Who().uid, held)
    with pytest.raises(Conflict, match="your name"):
        await merge(store, held)
    assert not (app / "a.txt").read_text().endswith("two\n")
    with own.open("a") as file:
        file.write("[user]\n\tname = Ann Other\n\temail = other@example.org\n")
    made = (await merge(store, held)).after
    assert git(app, "rev-parse", "HEAD") == made
    assert git(app, "log", "-1", "--format=%an %ce|%p|%s", "HEAD").startswith(
        "Ann Other other@example.org|"
    )
    assert len(git(app, "log", "-1", "--format=%p").split()) == 2
    assert git(app, "status", "--porcelain") == ""
    assert (app / "a.txt").read_text() == "one\ntwo\n"
    assert "merge postroom/coder" in git(app, "reflog", "-1")
    await bench.spaces.forget(Who().uid)
    assert git(app, "for-each-ref", "refs/postroom") == ""
    assert (await merge(store, held)).after == made
    assert not canary.exists()


def _converting(app: Path) -> None:
    git(app, "config", "core.autocrlf", "true")


def _sparse(app: Path) -> None:
    git(app, "sparse-checkout", "set", "--no-cone", "/*", "!/dir")


def _detached(app: Path) -> None:
    git(app, "switch", "-q", "--detach")


def _attributed(app: Path) -> None:
    (app / ".git" / "info" / "attributes").write_text("*.txt merge=union\n")


@pytest.mark.parametrize("prepare", [_converting, _sparse, _detached, _attributed])
async def test_a_merge_that_the_persons_git_would_do_in_its_own_way_is_left_to_it(
    bench: Bench, tmp_path: Path, prepare: object
):
    app = repository(tmp_path / "app")
    assert callable(prepare)
    prepare(app)
    await _done(bench, app)
    held = await bench.bring()
    before = git(app, "rev-parse", "HEAD")
    with pytest.raises(Conflict) as refused:
        await merge(bench.spaces.store(Who().uid, held), held)
    assert "merge postroom/coder" in refused.value.remedy
    assert git(app, "rev-parse", "HEAD") == before
    if prepare is _converting:
        assert any("ends of lines" in note for note in held.notes)


async def test_a_file_that_a_merge_would_overwrite_stays(bench: Bench, tmp_path: Path):
    app = repository(tmp_path / "app")
    await bench.work(await bench.begin(app), "echo theirs > new.txt; echo two >> a.txt")
    held = await bench.bring()
    (app / "new.txt").write_text("mine")
    with pytest.raises(PostroomError):
        await merge(bench.spaces.store(Who().uid, held), held)
    assert (app / "new.txt").read_text() == "mine"
    assert git(app, "status", "--porcelain") == "?? new.txt"
