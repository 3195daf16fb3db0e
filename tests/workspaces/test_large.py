"""Files that nobody expects in a repository: kept out of a worker's branch, let in, or named."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.e2e.conftest import PostRoom, until
from tests.workspaces.bench import FREE, Bench, Who, git, repository
from tests.workspaces.test_room import spawn, task

pytestmark = pytest.mark.anyio

MAKE = "head -c 1100000 /dev/urandom > {name}"
LARGE = 1_100_000
WHO = Who()


@pytest.fixture
def bench(bench: Bench) -> Bench:
    bench.settings = replace(bench.settings, max_file_mb=1)
    bench.again()
    return bench


@pytest.mark.requirement("workspace-large")
async def test_a_large_file_that_was_not_committed_stays_in_the_workers_folder_until_it_is_let_in(
    bench: Bench, tmp_path: Path
):
    app = repository(tmp_path / "app")
    placed = await bench.begin(app)
    await bench.work(placed, f"{MAKE.format(name='b.bin')}; echo two >> a.txt")
    held = await bench.bring()
    assert held.large == ("b.bin",)
    assert held.left == (
        "b.bin (1.1 MB), over workspace.max_file_mb, 1: postroom diff @coder --large lets it in",
    )
    assert git(app, "diff", "--name-only", "main", "postroom/coder") == "a.txt"
    assert (placed.workspace / "b.bin").stat().st_size == LARGE
    held = await bench.spaces.bring(WHO, bench.provider, FREE, large=True)
    assert (held.large, held.left) == ((), ())
    assert held.warnings == ["its branch brings large files: b.bin (1.1 MB)"]
    assert git(app, "cat-file", "-s", "postroom/coder:b.bin") == str(LARGE)
    held = await bench.bring()
    assert (held.large, held.brought) == ((), git(app, "rev-parse", "postroom/coder"))


@pytest.mark.requirement("workspace-large")
async def test_a_file_that_has_grown_large_comes_back_as_it_was_before(
    bench: Bench, tmp_path: Path
):
    app = repository(tmp_path / "app")
    (app / "person.bin").write_bytes(bytes(LARGE))
    git(app, "add", ".")
    git(app, "commit", "-qm", "a large one of the person")
    placed = await bench.begin(app)
    await bench.work(
        placed,
        f"{MAKE.format(name='a.txt')}; echo more >> person.bin; {MAKE.format(name='staged')};"
        " git add staged; echo x > small",
    )
    held = await bench.bring()
    assert sorted(held.large) == ["a.txt", "staged"]
    assert git(app, "show", "postroom/coder:a.txt") == "one"
    changed = git(app, "diff", "--name-only", "main", "postroom/coder")
    assert changed.split("\n") == ["person.bin", "small"]
    assert (placed.workspace / "a.txt").stat().st_size == LARGE
    (app / "c.txt").write_text("theirs\n")
    git(app, "add", "c.txt")
    git(app, "commit", "-qm", "theirs")
    assert not (await bench.sync()).conflicts
    assert (placed.workspace / "a.txt").stat().st_size == LARGE
    assert (placed.workspace / "c.txt").is_file()
    assert sorted((await bench.bring()).large) == ["a.txt", "staged"]


@pytest.mark.requirement("workspace-large")
async def test_what_the_agent_has_committed_comes_back_and_is_named(bench: Bench, tmp_path: Path):
    app = repository(tmp_path / "app")
    placed = await bench.begin(app)
    script = (
        f"{MAKE.format(name='b.bin')}; {MAKE.format(name='gone.bin')}; printf 'a\\0b' > 'é.ico'; git add .;"
        " git commit -qm one; git rm -q gone.bin; git commit -qm two"
    )
    await bench.work(placed, script)
    held = await bench.bring()
    assert (held.large, held.left) == ((), ())
    assert held.warnings == [
        "its branch brings large files: b.bin (1.1 MB), gone.bin (1.1 MB), in a commit before the last",
        "its branch brings new binary files: é.ico",
    ]
    git(app, "merge", "-q", "postroom/coder")
    await bench.work(placed, "echo x > x")
    assert (await bench.bring()).warnings == []


@pytest.mark.requirement("workspace-large")
async def test_a_large_file_of_a_copied_repository_is_not_on_the_branch_either(
    bench: Bench, tmp_path: Path
):
    app = repository(tmp_path / "app")
    (app / "draft.bin").write_bytes(bytes(LARGE))
    placed = await bench.begin(app, "copy")
    await bench.work(placed, "echo x > x")
    held = await bench.bring()
    assert held.large == ("draft.bin",)
    files = git(app, "ls-tree", "-r", "--name-only", "postroom/coder")
    assert files.split("\n") == ["a.txt", "x"]


@pytest.mark.requirement("workspace-large")
def test_a_person_is_told_of_large_files_when_a_task_ends_at_the_diff_and_before_a_merge(
    room: PostRoom, tmp_path: Path
):
    make = MAKE.replace("00 ", "000 ")
    app = repository(tmp_path / "app")
    spawn(room, "heavy", "--workspace", str(app))
    done = task(
        room,
        "heavy",
        f"{make.format(name='c.bin')}; git add .; git commit -qm c; {make.format(name='d.bin')}",
    )
    until(lambda: "workspace-large" in room.run("alerts", "--json"))
    assert "too large: d.bin; postroom diff @heavy --large lets them in" in room.run("alerts")
    room.run("diff", "heavy", "--stat")
    assert "not brought back: d.bin (11.0 MB), over workspace.max_file_mb, 10:" in room.stderr
    look = "its branch brings large files: c.bin (11.0 MB)"
    assert f"look before you merge: {look}" in room.stderr
    room.run("task", "apply", done)
    assert look in room.stderr
    room.run("remove", "heavy", "--purge", "--yes", status=5)
    assert "d.bin" in room.stderr
    left = json.loads(room.run("prune", "--dry-run", "--json"))["leftovers"]
    folder = next(one["folder"] for one in left if one["nick"] == "heavy")
    assert Path(folder, "workspace", "d.bin").stat().st_size == 10 * LARGE
