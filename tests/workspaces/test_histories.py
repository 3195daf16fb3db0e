"""Random histories of a person and a worker on one repository: nothing of the person is lost or changed."""

from __future__ import annotations

import asyncio
import os
import subprocess
import tempfile
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from postroom.errors import Conflict, InvalidInput, PostroomError
from postroom.workers.workspaces.service import Placed
from postroom.workers.workspaces.taking import Taken
from tests.workspaces.bench import QUIET, Bench, Who, git, repository

WHO = Who()
MINE = ("refs/postroom/", "refs/heads/postroom/")


@dataclass(frozen=True)
class Seen:
    """All that a person has in a repository, but for the refs of workers."""

    head: str
    refs: frozenset[str]
    index: str
    files: dict[str, tuple[int, bytes]]
    stashes: str
    logs: dict[str, bytes]


def seen(app: Path) -> Seen:
    refs = git(app, "for-each-ref", "--format=%(refname) %(objectname)").split("\n")
    files: dict[str, tuple[int, bytes]] = {}
    for folder, names, found in os.walk(app):
        names[:] = [name for name in names if name != ".git"]
        for name in found:
            path = Path(folder, name)
            link = path.is_symlink()
            content = os.fsencode(path.readlink()) if link else path.read_bytes()
            files[str(path.relative_to(app))] = path.lstat().st_mode, content
    logs = app / ".git" / "logs"
    return Seen(
        (app / ".git" / "HEAD").read_text(),
        frozenset(ref for ref in refs if ref and not ref.startswith(MINE)),
        git(app, "ls-files", "--stage", "-t", "-v"),
        files,
        git(app, "stash", "list", "--format=%H"),
        {
            str(path.relative_to(logs)): path.read_bytes()
            for path in logs.rglob("*")
            if path.is_file() and "postroom" not in path.parts
        },
    )


class History:
    """One repository and its worker."""

    def __init__(self, folder: Path, *, unborn: bool) -> None:
        self.app = repository(folder / "app")
        if unborn:
            git(self.app, "update-ref", "-d", "HEAD")
            git(self.app, "rm", "-q", "--cached", "a.txt")
        self.bench = Bench(folder)
        self.placed: Placed | None = None
        self.number = 0

    def next(self) -> int:
        self.number += 1
        return self.number

    # What the person does; what git refuses, it refuses.

    def git(self, *words: str) -> None:
        subprocess.run(
            ["git", "-C", str(self.app), *words],
            capture_output=True,
            env=os.environ | QUIET,
            check=False,
        )

    def commit(self) -> None:
        self.stage()
        self.git("commit", "-qm", f"person {self.number}")

    def stage(self) -> None:
        (self.app / f"p{self.next() % 3}").write_text(f"person {self.number}\n")
        self.git("add", f"p{self.number % 3}")

    def change(self) -> None:
        (self.app / "a.txt").write_text(f"changed {self.next()}\n")

    def untracked(self) -> None:
        (self.app / f"new{self.next() % 3}").write_text(f"untracked {self.number}\n")
        (self.app / f"new{self.number % 3}").chmod(0o755)

    def ignored(self) -> None:
        (self.app / ".git" / "info" / "exclude").write_text("*.env\n")
        (self.app / "agent1.env").write_text(f"secret {self.next()}\n")

    def conflict(self) -> None:
        self.git("merge", "-q", "--no-edit", "postroom/coder")

    def stash(self) -> None:
        self.change()
        self.git("stash", "-q")

    def switch(self) -> None:
        self.git("switch", "-q", "-c", f"topic{self.next()}")

    def back(self) -> None:
        self.git("switch", "-q", "main")

    def detach(self) -> None:
        self.git("switch", "-q", "--detach")

    def tidy(self) -> None:
        self.git("merge", "--abort")
        self.git("reset", "-q", "--hard")

    # What the worker does.

    async def works(self, script: str) -> None:
        if self.placed is not None:
            await self.bench.work(self.placed, script)

    async def agent_commits(self) -> None:
        name = f"agent{self.next() % 3}"
        await self.works(
            f"echo {self.number} > {name}; git add {name}; git commit -qm {name} || true"
        )

    async def agent_changes(self) -> None:
        await self.works(
            f"echo agent {self.next()} > a.txt; echo x > new{self.number % 3}; echo y > e.env"
        )

    async def agent_forces(self) -> None:
        await self.works(
            f"echo {self.next()} > agent1.env; git add -f agent1.env; git commit -qm env || true"
        )

    # What is ours.

    async def spawn(self) -> None:
        if self.placed is None:
            self.placed = await self.bench.begin(self.app)

    async def bring(self) -> None:
        if self.placed is not None:
            await self.bench.bring()

    async def sync(self) -> None:
        if self.placed is not None:
            await self.bench.sync()

    async def offer(self) -> None:
        if self.placed is not None:
            await self.bench.spaces.offer(WHO.uid)

    async def merge(self) -> Taken | None:
        await self.bring()
        return await self.bench.spaces.merge(WHO.uid) if self.placed else None

    async def undo(self) -> Taken | None:
        return await self.bench.spaces.undo(WHO.uid) if self.placed else None


PERSON = (
    *(History.commit, History.stage, History.change, History.untracked, History.ignored),
    *(History.conflict, History.stash, History.switch, History.back, History.detach, History.tidy),
)
AGENT = (History.agent_commits, History.agent_changes, History.agent_forces)
OURS = (History.bring, History.sync, History.offer)
MOVING = (History.merge, History.undo)
Step = Callable[[History], Coroutine[Any, Any, Taken | None] | None]


async def watched(history: History, step: Step) -> None:
    """Do one step of ours, and see that the person has all as before, but for what a merge says."""
    before, done = seen(history.app), None
    try:
        done = await step(history)  # ty: ignore[invalid-await]
    except PostroomError:
        done = None
    after = seen(history.app)
    if done is None or done.before == done.after:
        assert after == before
        return
    _only_moved(history.app, done, before, after)


def _only_moved(app: Path, done: Taken, before: Seen, after: Seen) -> None:
    ref = f"refs/heads/{done.onto}"
    gone = {f"{ref} {done.before}"} if done.before else set()
    came = {f"{ref} {done.after}"} if done.after else set()
    assert (before.refs - after.refs, after.refs - before.refs) == (gone, came)
    assert (after.head, after.stashes) == (before.head, before.stashes)
    none = git(app, "hash-object", "-t", "tree", "/dev/null")
    both = (done.before or none, done.after or none)
    moved = set(git(app, "diff", "--name-only", "--no-renames", *both).split("\n"))
    for name in before.files.keys() | after.files.keys():
        if name not in moved:
            assert before.files.get(name) == after.files.get(name), name
    if done.after:
        assert git(app, "diff", "--cached", "--name-only") == ""
        assert git(app, "diff", "--name-only") == ""
    kept = before.logs.items() if done.after else ()
    for name, log in kept:
        assert after.logs[name].startswith(log), name
        assert after.logs[name].count(b"\n") <= log.count(b"\n") + 1


async def lived(steps: list[Step], *, unborn: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="history-") as folder:
        history = History(Path(folder), unborn=unborn)
        await watched(history, History.spawn)
        for step in steps:
            if step in PERSON:
                step(history)
            elif step in AGENT:
                await step(history)  # ty: ignore[invalid-await]
            else:
                await watched(history, step)


ANY = st.sampled_from((*PERSON, *AGENT, *AGENT, *OURS, *MOVING, *MOVING))
HISTORY = given(steps=st.lists(ANY, min_size=4, max_size=9), unborn=st.booleans())
QUICK = settings(
    max_examples=4, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
LONG = settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in QUIET.items():
        monkeypatch.setenv(name, value)


@pytest.mark.requirement("workspace-merge-undone")
@QUICK
@HISTORY
def test_nothing_of_a_person_is_lost_or_changed(steps: list[Step], unborn: bool):
    asyncio.run(lived(steps, unborn=unborn))


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.requirement("workspace-merge-undone")
@LONG
@HISTORY
def test_nothing_of_a_person_is_lost_or_changed_in_many_histories(steps: list[Step], unborn: bool):
    asyncio.run(lived(steps, unborn=unborn))


@pytest.mark.requirement("workspace-merge-undone")
@pytest.mark.parametrize(
    "between",
    [
        History.untracked,
        History.stage,
        History.change,
        History.stash,
        History.commit,
        History.ignored,
    ],
)
def test_a_merge_and_its_undo_change_what_they_say_and_no_more(between: Step):
    steps: list[Step] = [History.agent_commits, History.agent_changes, between, History.merge]
    asyncio.run(lived([*steps, History.undo], unborn=False))


@pytest.mark.anyio
async def test_a_branch_without_a_commit_gets_the_work_and_is_without_one_again(
    bench: Bench, tmp_path: Path
):
    git(tmp_path, "init", "-q", "-b", "main", "app")
    app = tmp_path / "app"
    placed = await bench.begin(app)
    await bench.work(placed, "echo one > a.txt; git add .; git commit -qm first; echo two > b.txt")
    await bench.bring()
    with pytest.raises(Conflict):
        await bench.sync()
    (app / "mine").write_text("mine\n")
    done = await bench.spaces.merge(WHO.uid)
    assert (done.onto, done.before) == ("main", "")
    assert sorted(path.name for path in app.iterdir()) == [".git", "a.txt", "b.txt", "mine"]
    await bench.spaces.undo(WHO.uid)
    assert git(app, "for-each-ref", "refs/heads/main") == ""
    assert sorted(path.name for path in app.iterdir()) == [".git", "mine"]


@pytest.mark.anyio
async def test_a_detached_head_gets_a_branch_and_is_told_why_there_is_no_sync_and_no_merge(
    bench: Bench, tmp_path: Path
):
    app = repository(tmp_path / "app")
    git(app, "switch", "-q", "--detach")
    placed = await bench.begin(app)
    await bench.work(placed, "echo two >> a.txt; git commit -qam second")
    assert git(app, "show", f"{(await bench.bring()).branch}:a.txt") == "one\ntwo"
    before = seen(app)
    with pytest.raises(InvalidInput, match="began from no branch"):
        await bench.sync()
    with pytest.raises(Conflict, match="is on no branch"):
        await bench.spaces.merge(WHO.uid)
    assert "is on no branch" in (await bench.spaces.offer(WHO.uid)).hinders
    assert seen(app) == before
    git(app, "switch", "-q", "main")
    assert (await bench.spaces.merge(WHO.uid)).onto == "main"


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.anyio
async def test_a_repository_of_300_mb_is_worked_on_with_its_steps_told(
    bench: Bench, tmp_path: Path
):
    app = repository(tmp_path / "app")
    for number in range(30):
        (app / f"{number}.bin").write_bytes(os.urandom(10_000_000))
    git(app, "add", ".")
    git(app, "commit", "-qm", "large")
    placed = await bench.begin(app)
    await bench.work(placed, "echo two >> a.txt; head -c 60000000 /dev/urandom > huge.bin")
    told: list[str] = []
    async with asyncio.timeout(60):
        bringing = asyncio.ensure_future(bench.bring())
        while not bringing.done():
            told.append(bench.spaces.doing.get(WHO.uid, ""))
            await asyncio.sleep(0.01)
        held = await bringing
    assert {"reads its files", "checks what comes back"} <= set(told)
    assert held.large == ("huge.bin",)
