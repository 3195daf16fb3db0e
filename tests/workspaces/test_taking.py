"""What a worker did merged into what a person is on, and that undone; what the person has is never lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from postroom.errors import Conflict, InvalidInput, PostroomError
from tests.workspaces.bench import Bench, Who, git, repository

pytestmark = pytest.mark.anyio

SECOND = "echo two >> a.txt; echo new > new.txt; git rm -q --ignore-unmatch old.txt; git add .; git commit -qm second"


@pytest.fixture(autouse=True)
def person(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has a name, which a merge of two sides needs."""
    own = tmp_path / "gitconfig"
    own.write_text("[user]\n\tname = Ann Other\n\temail = other@example.org\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(own))


async def done(bench: Bench, app: Path, script: str = SECOND) -> None:
    await bench.work(await bench.begin(app), script)
    await bench.bring()


def state(app: Path) -> tuple[str, str, dict[str, str]]:
    """Where the person is, what is staged, and every file that they have."""
    files = {
        str(path.relative_to(app)): path.read_text()
        for path in app.rglob("*")
        if path.is_file() and ".git" not in path.parts
    }
    return git(app, "rev-parse", "HEAD"), git(app, "status", "--porcelain", "--ignored"), files


@pytest.mark.requirement("workspace-merge-undone")
@pytest.mark.parametrize("moved", [False, True])
async def test_an_undo_puts_branch_and_files_back_to_where_they_were(
    bench: Bench, tmp_path: Path, moved: bool
):
    app = repository(tmp_path / "app")
    (app / "old.txt").write_text("old")
    (app / ".gitignore").write_text("*.log\n")
    git(app, "add", ".")
    git(app, "commit", "-qm", "old")
    await done(bench, app)
    if moved:
        (app / "mine.txt").write_text("mine")
        git(app, "add", ".")
        git(app, "commit", "-qm", "mine")
    (app / "draft").write_text("draft")
    (app / "run.log").write_text("log")
    before = state(app)
    offered = await bench.spaces.offer(Who().uid)
    assert (offered.onto, offered.back, offered.hinders) == ("main", before[0], "")
    assert state(app) == before
    taken = await bench.spaces.merge(Who().uid)
    assert (taken.onto, taken.before) == ("main", before[0])
    assert (app / "new.txt").read_text() == "new\n"
    assert not (app / "old.txt").exists()
    assert (await bench.spaces.offer(Who().uid)).hinders == "main has all of it already"
    bench.again()  # another process of the post room knows of it, too
    undone = await bench.spaces.undo(Who().uid)
    assert (undone.onto, undone.after) == ("main", before[0])
    assert state(app) == before
    assert "undo of merge postroom/coder" in git(app, "reflog", "-1")
    with pytest.raises(InvalidInput, match="no merge to undo"):
        await bench.spaces.undo(Who().uid)
    assert (await bench.spaces.merge(Who().uid)).before == before[0]


def _commit(app: Path) -> None:
    git(app, "commit", "-q", "--allow-empty", "-m", "later")


def _dirty(app: Path) -> None:
    (app / "a.txt").write_text("mine\n")


def _staged(app: Path) -> None:
    (app / "a.txt").write_text("mine\n")
    git(app, "add", ".")
    (app / "a.txt").write_text("one\ntwo\n")


def _elsewhere(app: Path) -> None:
    git(app, "switch", "-q", "-c", "side")


def _hidden(app: Path) -> None:
    git(app, "update-index", "--assume-unchanged", "a.txt")
    (app / "a.txt").write_text("mine\n")


def _unlooked(app: Path) -> None:
    git(app, "update-index", "--skip-worktree", "a.txt")
    (app / "a.txt").write_text("mine\n")


def _ignored(app: Path) -> None:
    (app / ".git" / "info" / "exclude").write_text("old.txt\n")
    (app / "old.txt").write_text("mine")


REFUSED: dict[Callable[[Path], None], str] = {
    _commit: "has moved since",
    _dirty: "uncommitted changes",
    _staged: "uncommitted changes",
    _elsewhere: "is on side",
    _hidden: "read-tree failed",
    _unlooked: "read-tree failed",
    _ignored: "old.txt is a file of yours",
}


def put_back(app: Path, commit: str) -> None:
    git(app, "update-index", "--no-assume-unchanged", "a.txt")
    git(app, "update-index", "--no-skip-worktree", "a.txt")
    git(app, "switch", "-q", "-f", "main")
    git(app, "reset", "-q", "--hard", commit)
    git(app, "clean", "-qfdx")


@pytest.mark.requirement("workspace-merge-undone")
async def test_an_undo_that_would_cost_something_of_the_persons_changes_nothing(
    bench: Bench, tmp_path: Path
):
    app = repository(tmp_path / "app")
    (app / "old.txt").write_text("old")
    git(app, "add", ".")
    git(app, "commit", "-qm", "old")
    await done(bench, app)
    merged = (await bench.spaces.merge(Who().uid)).after
    for prepare, why in REFUSED.items():
        prepare(app)
        before = state(app)
        with pytest.raises(PostroomError, match=why):
            await bench.spaces.undo(Who().uid)
        assert state(app) == before, prepare
        put_back(app, merged)
    await bench.spaces.undo(Who().uid)
    assert not (app / "new.txt").exists()


async def test_an_ignored_file_that_a_merge_would_overwrite_stays(bench: Bench, tmp_path: Path):
    app = repository(tmp_path / "app")
    (app / ".gitignore").write_text("*.env\n")
    git(app, "add", ".")
    git(app, "commit", "-qm", "ignores")
    ways = "mkdir d e; for f in a.env d/b.env c.env e/d.env; do echo theirs > $f; done"
    await done(bench, app, f"{ways}; git add -f .; git commit -qm theirs")
    clean = git(app, "rev-parse", "HEAD")
    for mine in ("a.env", "d/b.env", "c.env/deep", "e"):
        file = app / mine
        file.parent.mkdir(exist_ok=True)
        file.write_text("my secret")
        before = state(app)
        hinders = (await bench.spaces.offer(Who().uid)).hinders
        assert "a file of yours that git does not know" in hinders, mine
        with pytest.raises(Conflict, match="would be overwritten"):
            await bench.spaces.merge(Who().uid)
        assert state(app) == before
        put_back(app, clean)
    await bench.spaces.merge(Who().uid)


async def test_the_hooks_and_signing_that_a_merge_leaves_out_are_named(
    bench: Bench, tmp_path: Path
):
    app = repository(tmp_path / "app")
    await done(bench, app)
    assert (await bench.spaces.offer(Who().uid)).notes == (
        "none of your hooks runs",
        "no commit is made for it, since your branch only moves forward",
    )
    for name in ("post-merge", "pre-push"):
        (app / ".git" / "hooks" / name).write_text("#!/bin/sh\n")
        (app / ".git" / "hooks" / name).chmod(0o755)
    git(app, "config", "commit.gpgSign", "true")
    git(app, "commit", "-q", "--allow-empty", "--no-gpg-sign", "-m", "mine")
    offered = await bench.spaces.offer(Who().uid)
    assert offered.notes == (
        "none of your hooks runs (git would run post-merge)",
        "the commit is not signed, though your git signs (commit.gpgSign)",
    )
    _dirty(app)
    assert "uncommitted changes" in (await bench.spaces.offer(Who().uid)).hinders


async def test_a_merge_into_no_commit_yet_is_undone_too(bench: Bench, tmp_path: Path):
    app = tmp_path / "app"
    app.mkdir()
    git(app, "init", "-q", "-b", "main")
    await done(bench, app, "echo new > new.txt; git add .; git commit -qm first")
    await bench.spaces.merge(Who().uid)
    assert (app / "new.txt").exists()
    await bench.spaces.undo(Who().uid)
    assert not (app / "new.txt").exists()
    assert git(app, "status", "--porcelain", "-b") == "## No commits yet on main"
