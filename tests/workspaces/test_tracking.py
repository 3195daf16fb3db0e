"""A worker sees the branches of its person as they are now."""

from __future__ import annotations

from pathlib import Path

import pytest

from postroom.workers.workspaces.records import Held
from postroom.workers.workspaces.tracking import chosen, marks
from tests.workspaces.bench import Bench, Who, git, repository
from tests.workspaces.test_syncing import commit

pytestmark = pytest.mark.anyio

UID = Who().uid


@pytest.mark.requirement("workspace-newer-commits")
async def test_a_worker_sees_its_persons_branch_move_and_can_change_nothing_of_it(
    bench: Bench, tmp_path: Path
):
    app = repository(tmp_path / "app")
    placed = await bench.begin(app)
    newest = commit(app, "c.txt", "theirs\n")
    await bench.spaces.track(UID)
    assert await bench.work(placed, "git rev-parse person/main >&2") == f"{newest}\n"
    script = "git commit -q --allow-empty -m mine && git gc -q && git merge -q person/main && cat c.txt >&2"
    assert (await bench.work(placed, script)).endswith("theirs\n")
    hostile = """
    ! git update-ref refs/remotes/person/main HEAD~1 2>/dev/null
    ! echo x > .git/refs/remotes/person/evil 2>/dev/null
    git pack-refs --all 2>/dev/null || true
    """
    await bench.work(placed, hostile)
    newest = commit(app, "d.txt", "theirs\n")
    git(app, "pack-refs", "--all")
    await bench.spaces.track(UID)
    assert await bench.work(placed, "git rev-parse person/main >&2; git fsck >&2") == f"{newest}\n"
    held = await bench.bring()
    standing = bench.spaces.standing[UID]
    assert (standing.branch, standing.newest, standing.behind, standing.ahead) == (
        *("main", newest, 1),
        2,
    )
    assert git(app, "diff", "--name-only", held.base, "postroom/coder") == ""


async def test_the_branch_that_its_own_follows_is_seen_and_others_where_they_are_asked_for(
    bench: Bench, tmp_path: Path
):
    origin = repository(tmp_path / "origin")
    git(origin, "branch", "release/1")
    git(tmp_path, "clone", "-q", str(origin), "app")
    app = tmp_path / "app"
    git(app, "branch", "private")
    placed = await bench.begin(app)
    newest = commit(origin, "c.txt", "new\n")
    git(app, "fetch", "-q")
    await bench.spaces.track(UID)
    shown = "git for-each-ref --format='%(refname:short)' refs/remotes >&2; git rev-parse person/origin/main >&2"
    assert await bench.work(placed, shown) == f"person/main\nperson/origin/main\n{newest}\n"


async def test_a_branch_in_the_place_of_a_folder_of_branches_is_seen(bench: Bench, tmp_path: Path):
    app = repository(tmp_path / "app")
    git(app, "switch", "-qc", "a/b")
    placed = await bench.begin(app)
    git(app, "switch", "-q", "main")
    git(app, "branch", "-D", "a/b")
    await bench.spaces.track(UID)
    assert await bench.work(placed, "git branch -r >&2") == ""
    assert (await bench.bring()).origin == "a/b"
    assert bench.spaces.standing[UID].behind == 0


def test_names_that_no_git_makes_workers_branches_and_those_that_collide_are_not_seen():
    held = Held("/app", "worktree", top="/app", origin="main", patterns=("*",))
    one = "1" * 40
    names = (
        "main",
        "x",
        "x/y",
        "../../evil",
        "a..b",
        "-x",
        ".hidden",
        "a.lock",
        "a\x1b[2J",
        "p/@{1}",
    )
    listed = {f"refs/heads/{name}": one for name in (*names, "postroom/coder", "z" * 300)}
    listed |= {"refs/remotes/origin/main": one, "refs/remotes/main/x": one}
    assert sorted(chosen(listed, held, "refs/remotes/origin/main")) == ["main", "origin/main", "x"]
    asked = held.after(patterns=("postroom/*",))
    assert "postroom/coder" in chosen(listed, asked, "")


@pytest.mark.parametrize("how", ["commit", "pack", "branch", "upstream"])
def test_marks_differ_once_a_branch_has_changed_and_only_then(tmp_path: Path, how: str):
    app = repository(tmp_path / "app")
    git(app, "branch", "b/c")
    before = marks(app)[:-1]
    git(app, "status")
    git(app, "update-ref", "refs/heads/postroom/coder", "HEAD")
    at_rest = marks(app)[:-1]
    if how == "commit":
        git(app, "switch", "-q", "b/c")
        commit(app, "x", "")
    elif how == "pack":
        git(app, "pack-refs", "--all")
    elif how == "branch":
        git(app, "branch", "-D", "b/c")
    else:
        git(app, "config", "branch.main.remote", "origin")
    assert before == at_rest or len(before) == len(at_rest)
    assert marks(app)[:-1] != at_rest
