"""A worker on a branch of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.workspaces.bench import FREE, Bench, Who, git, repository

pytestmark = pytest.mark.anyio

COMMIT = "echo two >> a.txt && git commit -qam second"


async def test_commits_and_uncommitted_work_come_back_as_a_branch(bench: Bench, tmp_path: Path):
    app = repository(tmp_path / "app")
    placed = await bench.begin(app)
    assert await bench.work(placed, "git status -sb && git log --format=%an:%s") == (
        "## postroom/coder\nanna:first\n"
    )
    await bench.work(placed, COMMIT + " && echo more > new.txt && git log -1 --format=%ae > mail")
    held = await bench.bring()
    assert held.branch == "postroom/coder"
    assert git(app, "log", "--format=%an:%s", "postroom/coder").splitlines() == [
        "coder:uncommitted work of @coder",
        "coder:second",
        "anna:first",
    ]
    assert git(app, "show", "postroom/coder:new.txt") == "more"
    assert git(app, "show", "postroom/coder:mail").endswith(".postroom.invalid")
    assert git(app, "status", "--porcelain") == ""
    assert git(app, "branch", "--show-current") == "main"


@pytest.mark.requirement("workspace-git-closed")
async def test_nothing_below_the_persons_git_directory_can_be_written_from_inside(
    bench: Bench, tmp_path: Path
):
    app = repository(tmp_path / "app")
    placed = await bench.begin(app)
    said = await bench.work(
        placed,
        "objects=$(cat .git/objects/info/alternates); ls $objects;"
        " (touch $objects/canary) 2>&1 || true; (touch $objects/info/canary) 2>&1 || true;"
        f" ls {app} 2>&1 || true",
    )
    assert said.count("Read-only file system") == 2
    assert "No such file or directory" in said
    assert not list(app.rglob("canary"))


@pytest.mark.requirement("workspace-branch")
async def test_a_second_turn_moves_the_branch_on_and_other_commits_on_it_are_kept(
    bench: Bench, tmp_path: Path
):
    app = repository(tmp_path / "app")
    placed = await bench.begin(app)
    await bench.work(placed, "echo draft > new.txt")
    first = await bench.bring()
    await bench.work(placed, "git add . && git commit -qm done")
    second = await bench.bring()
    assert first.branch == second.branch == "postroom/coder"
    assert git(app, "log", "--format=%s", "postroom/coder").splitlines() == ["done", "first"]
    git(app, "switch", "-q", "postroom/coder")
    (app / "anna.txt").write_text("mine")
    git(app, "add", ".")
    git(app, "commit", "-qm", "by anna")
    mine = git(app, "rev-parse", "HEAD")
    await bench.work(placed, COMMIT)
    third = await bench.bring()
    assert third.branch == "postroom/coder-2"
    assert git(app, "rev-parse", "postroom/coder") == mine
    assert git(app, "log", "-1", "--format=%s", "postroom/coder-2") == "second"


async def test_two_workers_work_at_once_on_one_repository_whose_names_are_sha256(
    bench: Bench, tmp_path: Path
):
    app = repository(tmp_path / "app", "--object-format=sha256")
    one, other = Who(), Who("d" * 32, "tester")
    for who in (one, other):
        placed = await bench.begin(app, who=who)
        await bench.work(placed, f"echo {who.nick} > {who.nick} && git add . && git commit -qm x")
    for who in (one, other):
        await bench.bring(who)
        assert git(app, "show", f"postroom/{who.nick}:{who.nick}") == who.nick


async def test_it_goes_on_after_a_restart_of_the_post_room(bench: Bench, tmp_path: Path):
    app = repository(tmp_path / "app")
    await bench.begin(app)
    bench.again()
    placed = await bench.spaces.ready(Who(), str(app), "worktree", bench.provider, None, FREE)
    await bench.work(placed, COMMIT)
    bench.again()
    await bench.bring()
    assert git(app, "log", "-1", "--format=%s", "postroom/coder") == "second"


async def test_a_change_in_the_second_of_the_checkout_that_keeps_the_size_comes_back(
    bench: Bench, tmp_path: Path
):
    placed = await bench.begin(repository(tmp_path / "app"))
    # A checkout and a change within one second; git is asked in the next one, as it counts whole seconds.
    again = "git checkout -q HEAD -- a.txt; echo two > a.txt"
    same = '[ "$(stat -c %Y .git/index)" = "$(stat -c %Y a.txt)" ]'
    await bench.work(placed, f"rm a.txt; {again}; while ! {same}; do {again}; done; sleep 1.1")
    held = await bench.bring()
    assert git(tmp_path / "app", "show", f"{held.branch}:a.txt") == "two"
