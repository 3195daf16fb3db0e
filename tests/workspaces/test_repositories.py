"""Repositories of every kind that a person may have."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.workspaces.bench import Bench, Who, git, repository

pytestmark = pytest.mark.anyio

WORK = "echo two >> a.txt && git add -A && git commit -qm second"


def _notes(bench: Bench) -> str:
    held = bench.spaces.held(Who().uid)
    return "; ".join(held.notes) if held else ""


async def test_a_shallow_clone(bench: Bench, tmp_path: Path):
    app = repository(tmp_path / "app")
    git(app, "commit", "-qm", "more", "--allow-empty")
    git(tmp_path, "clone", "-q", "--depth=1", f"file://{app}", "shallow")
    placed = await bench.begin(tmp_path / "shallow")
    assert await bench.work(placed, f"git log --format=%s; {WORK}") == "more\n"
    await bench.bring()
    assert git(tmp_path / "shallow", "log", "-1", "--format=%s", "postroom/coder") == "second"


async def test_a_linked_worktree_and_a_clone_that_borrows_its_objects(bench: Bench, tmp_path: Path):
    app = repository(tmp_path / "app")
    git(tmp_path, "clone", "-q", "--shared", str(app), "borrower")
    git(tmp_path / "borrower", "worktree", "add", "-q", "../linked")
    (tmp_path / "linked" / "sub").mkdir()
    placed = await bench.begin(tmp_path / "linked" / "sub")
    assert await bench.work(placed, f"git log --format=%s; git status --porcelain; {WORK}") == (
        "first\n"
    )
    assert "is a folder of the repository" in _notes(bench)
    await bench.bring()
    assert git(tmp_path / "borrower", "log", "-1", "--format=%s", "postroom/coder") == "second"


async def test_a_repository_without_a_commit(bench: Bench, tmp_path: Path):
    app = tmp_path / "app"
    app.mkdir()
    git(app, "init", "-q", "-b", "main")
    placed = await bench.begin(app)
    await bench.work(placed, WORK)
    await bench.bring()
    git(app, "merge", "-q", "postroom/coder")
    assert (app / "a.txt").read_text() == "two\n"


async def test_submodules_lfs_and_sparse_checkouts_are_said_and_a_submodule_stays_as_it_is(
    bench: Bench, tmp_path: Path
):
    app, lib = repository(tmp_path / "app"), repository(tmp_path / "lib")
    git(app, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(lib), "lib")
    (app / ".gitattributes").write_text("*.bin filter=lfs\n")
    (app / "dir").mkdir()
    (app / "dir" / "b.txt").write_text("b")
    git(app, "add", ".")
    git(app, "commit", "-qm", "all")
    git(app, "sparse-checkout", "set", "--no-cone", "/*", "!/dir")
    placed = await bench.begin(app)
    said = _notes(bench)
    assert all(word in said for word in ("sparse", "submodules come along", "LFS"))
    await bench.work(placed, f"ls dir/b.txt; {WORK}; echo x > dir/b.txt")
    held = await bench.bring()
    assert held.left == ()
    changed = git(app, "diff", "--name-only", "main", "postroom/coder")
    assert changed.splitlines() == ["a.txt", "dir/b.txt"]


async def test_a_repository_inside_the_workspace_is_named_as_left_behind(
    bench: Bench, tmp_path: Path
):
    app = repository(tmp_path / "app")
    placed = await bench.begin(app)
    await bench.work(
        placed,
        "git init -q empty; git init -q full; cd full; git config user.name x;"
        " git config user.email x; git commit -q --allow-empty -m x; cd ..; echo new > new.txt",
    )
    held = await bench.bring()
    assert sorted(held.left) == ["empty/", "full"]
    assert git(app, "show", "postroom/coder:new.txt") == "new"
