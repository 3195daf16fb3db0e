"""What leaves the log of tasks, and building their rows again from a copy and what is left."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from postroom.mail import projection
from postroom.projection.rebuild import rebuild
from postroom.projection.retention import Retention
from postroom.protocol import priority, subjects
from postroom.protocol.priority import Input
from postroom.protocol.tasks import chain_headers
from postroom.store import snapshot
from postroom.store.ports import TaskRow
from postroom.tasks.rules import LONGER, OVER
from postroom_a2a.task_state import TaskState
from tests.mail.desk import BACKENDS, SECONDS, running
from tests.tasks.desk import RULES, TaskDesk, following, open_desk, tables

pytestmark = pytest.mark.anyio

WORKING, DONE = TaskState.WORKING, TaskState.COMPLETED


def retention(desk: TaskDesk, folder: Path, later: float) -> Retention:
    """As it will be in `later` seconds beyond the day that everything is kept."""
    over = projection.OVER | OVER
    return Retention(
        desk.admin,
        desk.database,
        folder,
        over,
        org="default",
        clock=lambda: time.time() + 86400 + later,
    )


async def done_and_open(desk: TaskDesk) -> tuple[TaskRow, TaskRow]:
    """A task that has ended and one that has not; to both their worker was sent an answer."""
    ann, bob = await desk.worker("ann"), await desk.worker("bob")
    done = await desk.taken(bob, await desk.ask(ann, bob.uid))
    held = await desk.taken(bob, await desk.ask(ann, bob.uid))
    for row in (done, held):
        said = Input(row.id, {"parts": []})
        await desk.bus.publish(subjects.priority(bob.uid, ann.uid), priority.encode(said))
    done = await desk.write(bob, done, DONE, "42")
    await desk.settled()
    return done, held


async def left(desk: TaskDesk, stream: str) -> list[str]:
    return [record.subject async for record in desk.admin.replay(stream)]


@pytest.mark.requirement("mail-retention-covered")
@pytest.mark.parametrize("backend", BACKENDS)
async def test_only_records_of_final_tasks_are_deleted(tmp_path: Path, backend: str):
    async with open_desk(tmp_path, backend) as desk:
        _, held = await done_and_open(desk)
        await retention(desk, tmp_path / "copy", 60).shorten()
        assert {subject.split(".")[3] for subject in await left(desk, "TASKS")} == {held.id}
        assert len(await left(desk, "PRIORITY")) == 1


@pytest.mark.requirement("mail-retention-covered")
async def test_nothing_of_a_day_is_deleted(tmp_path: Path):
    async with open_desk(tmp_path, "memory") as desk:
        await done_and_open(desk)
        assert await retention(desk, tmp_path / "copy", -60).shorten() == 0


@pytest.mark.requirement("mail-retention-covered")
async def test_what_nobody_took_of_the_priority_lane_for_a_week_is_deleted(tmp_path: Path):
    async with open_desk(tmp_path, "memory") as desk:
        _, held = await done_and_open(desk)
        await desk.bus.publish(subjects.priority(held.worker, "postroom"), b"junk")
        await retention(desk, tmp_path / "copy", LONGER + 60).shorten()
        assert await left(desk, "PRIORITY") == []
        assert {subject.split(".")[3] for subject in await left(desk, "TASKS")} == {held.id}


@pytest.mark.requirement("mail-rebuild-equal")
@pytest.mark.parametrize("backend", BACKENDS)
async def test_a_copy_and_the_log_behind_it_give_the_same_tasks_and_the_fold_goes_on(
    tmp_path: Path, backend: str
):
    async with open_desk(tmp_path, backend, fold=False) as desk:
        async with running(desk.fold.run()):
            await desk.fold.ready(SECONDS)
            _, held = await done_and_open(desk)
            await retention(desk, tmp_path / "copy", 60).shorten()
            bob = await desk.worker("bob2")
            ann = await desk.worker("ann2")
            new = await desk.taken(bob, await desk.ask(ann, bob.uid))
            await desk.settled()
        before = await desk.database.read(tables)
        assert len(before["a2a_tasks"]) == 3
        await rebuild(desk.database, desk.admin, RULES, tmp_path / "copy" / snapshot.NAME)
        assert await desk.database.read(tables) == before
        desk.fold = desk.new_fold()
        async with running(desk.fold.run()):
            await desk.fold.ready(SECONDS)
            done = await desk.write(bob, new, DONE, "43")
            assert done.final
            assert not (await desk.task(held.id, held.seq)).final


@pytest.mark.requirement("mail-rebuild-equal")
@pytest.mark.parametrize("copied", [False, True], ids=["log", "snapshot"])
async def test_who_was_not_told_before_a_rebuild_is_told_after_it(tmp_path: Path, copied: bool):
    async with open_desk(tmp_path, fold=False) as desk:
        async with running(desk.fold.run()):
            await desk.fold.ready(SECONDS)
            ann, bob = await desk.worker("ann"), await desk.worker("bob")
            for _ in range(2):
                row = await desk.taken(bob, await desk.ask(ann, bob.uid))
                await desk.write(bob, row, DONE, "42")
                await desk.settled()
            if copied:
                await retention(desk, tmp_path / "copy", 60).shorten()
            row = await desk.taken(bob, await desk.ask(ann, bob.uid))
            await desk.settled()
        record = following(row, DONE, "43")  # and the fold is killed before it comes to this
        headers = chain_headers(bob.uid, row.id, row.seq)
        await bob.bus.publish(record.subject(bob.uid), record.encode(), metadata=headers)
        before = [update.task for update in await desk.updates(ann.uid)]
        assert row.id not in before

        path = tmp_path / "copy" / snapshot.NAME if copied else None
        await rebuild(desk.database, desk.admin, RULES, path)
        desk.task_clerk = desk._task_clerk(desk.database)
        desk.fold = desk.new_fold()
        async with running(desk.fold.run()):
            await desk.fold.ready(SECONDS)
            await desk.settled()
            told = [update.task for update in await desk.updates(ann.uid)]
        assert told == [*before, row.id]
