"""How often a task is begun, by what its template says, and what becomes of one that is given up."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path

import pytest

from postroom.bus.port import MessageBusProvider
from postroom.errors import BusDisconnected
from postroom.protocol import subjects
from postroom.protocol.tasks import chain_headers
from postroom.store.ports import TaskRow
from postroom.tasks.attempts import Attempts, gave_up
from postroom.tasks.execution import Execution
from postroom.tasks.log import AttemptLost
from postroom_a2a.task_state import TaskState
from postroom_a2a.tasks import apply
from tests.control.taskroom import Hand, TaskRoom, emptied, task_room
from tests.mail.desk import Worker
from tests.rig import Rig, running_bus
from tests.tasks.desk import TaskDesk, following, open_desk
from tests.tasks.enginedesk import Desk, done, running_desk

pytestmark = pytest.mark.anyio

NEVER = Attempts(again=False)


@pytest.fixture(scope="module")
async def rig(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Rig]:
    async with running_bus(tmp_path_factory.mktemp("bus")) as found:
        yield found


@pytest.fixture(scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[TaskRoom]:
    async with task_room(tmp_path_factory.mktemp("room")) as room:
        yield room


async def dies(_: Execution) -> None:
    """The script of an agent that ends in the middle of its task."""
    raise AttemptLost("it was killed by signal 9")


async def given_up(desk: Desk, task: str) -> tuple[int, str]:
    """How often a task that has failed was begun, and what it says; its last record has the number of lost attempts."""
    last = await desk.log.until(task, TaskState.FAILED)
    assert last.event is not None
    assert last.event["statusUpdate"]["metadata"] == {"urn:postroom:a2a:gave-up:1": last.lost}
    return len(desk.executor.begun), await desk.text(task)


@pytest.mark.requirement("task-retry")
async def test_a_task_is_begun_as_often_as_its_template_says(rig: Rig) -> None:
    for most, said in ((1, "lost 1 time, last:"), (2, "lost 2 times, last:")):
        async with running_desk(rig, dies, attempts=Attempts(most)) as desk:
            begun, text = await given_up(desk, await desk.ask("do it"))

            assert begun == most
            assert text == f"{said} it was killed by signal 9"


@pytest.mark.requirement("task-retry")
async def test_a_task_that_may_not_run_twice_fails_when_its_worker_dies(rig: Rig) -> None:
    async with running_desk(rig, dies, attempts=NEVER) as desk:
        begun, text = await given_up(desk, await desk.ask("pay the bill"))

        assert begun == 1
        assert text == (
            "it was killed by signal 9; what it had done is not known, "
            "and its template lets no task run twice"
        )


async def test_a_later_start_does_not_begin_a_task_that_may_not_run_twice(rig: Rig) -> None:
    stay = asyncio.Event()

    async def stays(_: Execution) -> None:
        await stay.wait()

    async with running_desk(rig, stays, attempts=NEVER) as first:
        begun = await first.ask("begun")
        await first.log.until(begun, TaskState.WORKING)
        waiting = await first.ask("waiting")

    async with running_desk(
        rig, bus=first.bus, alice=first.alice, recover=(begun, waiting), attempts=NEVER
    ) as second:
        await second.log.until(waiting, TaskState.COMPLETED)

        assert second.executor.begun == [waiting]
        assert "its worker ended; what it had done" in await second.text(begun)


async def test_a_stop_fails_the_task_that_may_not_run_twice_and_no_other(rig: Rig) -> None:
    stop = asyncio.Event()

    async def stops(_: Execution) -> None:
        await stop.wait()
        raise AttemptLost("the agent ended: exit code 0")

    async with running_desk(rig, stops, attempts=NEVER) as desk:
        begun = await desk.ask("begun")
        await desk.log.until(begun, TaskState.WORKING)
        waiting = await desk.ask("waiting")
        desk.engine.stop()
        stop.set()
        await desk.engine.settled(10)

        assert (await given_up(desk, begun))[1].startswith("the worker was stopped; what it had")
        assert await desk.log.states(waiting) == ["submitted"]


async def test_an_agent_that_goes_on_in_its_session_is_given_the_task_again(rig: Rig) -> None:
    async def once(execution: Execution) -> None:
        await (dies(execution) if execution.attempt == 1 else done(execution))

    goes_on = Attempts(again=False, goes_on=lambda: True)
    async with running_desk(rig, once, attempts=goes_on) as desk:
        task = await desk.ask("do it")

        assert (await desk.log.until(task, TaskState.COMPLETED)).attempt == 2


@pytest.mark.requirement("task-request-runs-once")
async def test_a_request_that_is_delivered_again_and_again_is_done_once(rig: Rig) -> None:
    reached, go, ends = asyncio.Event(), asyncio.Event(), []

    async def script(execution: Execution) -> None:
        reached.set()
        await go.wait()
        await done(execution)
        ends.append(execution.id)

    async with running_desk(rig, script) as desk:
        ask = desk.request("do it")
        task = await desk.give(ask)
        await reached.wait()
        await asyncio.gather(*(desk.give(ask) for _ in range(5)))  # while it is worked on
        # A second start of the same worker, which has it from its inbox, too.
        async with running_desk(rig, script, bus=desk.bus, alice=desk.alice) as other:
            other.log.asks[task] = ask
            await asyncio.gather(desk.give(ask), other.give(ask))
            go.set()
            await desk.log.until(task, TaskState.COMPLETED)
            await asyncio.gather(*(each.give(ask) for each in (desk, other, desk, other)))
            last = await other.ask("the next one")
            await other.log.until(last, TaskState.COMPLETED)
        async with running_desk(rig, script, bus=desk.bus, alice=desk.alice) as later:
            later.log.asks[task] = ask
            await later.give(ask)
            last = await later.ask("the next one")
            await later.log.until(last, TaskState.COMPLETED)

        assert ends.count(task) == 1
        assert (await desk.log.states(task)).count("completed") == 1


# ── what the post room makes of it ──────────────────────────────────────────────────────────────────


async def gives_up(worker: Hand, task: str) -> None:
    """What the sidecar of a worker stores when a task was lost too often."""
    await worker.take(task)
    await worker.say(task, TaskState.WORKING, attempt=1)
    row = await worker.room.row(task)
    record = following(row, TaskState.FAILED, "lost 3 times, last: exit code 1")
    assert record.event is not None
    event = gave_up(record.event, 3)
    record = replace(record, event=event, task=apply(json.loads(row.snapshot), event), lost=3)
    stored = await worker.bus.publish(
        record.subject(worker.uid),
        record.encode(),
        metadata=chain_headers(worker.uid, task, row.seq),
    )
    assert stored is not None
    await worker.room.parts.fold.reached("TASKS", stored.sequence, 10)
    await worker.room.parts.fold.settled(10)


@pytest.mark.requirement("task-retry")
async def test_a_task_that_was_given_up_is_a_dead_letter_and_is_asked_for_again(shared: TaskRoom):
    async with emptied(shared) as room:
        alice = await room.worker("alice")
        task = (await room.delegate("@alice", "paint the door"))["id"]
        await gives_up(alice, task)
        await room.folded("DEADLETTER")

        letters = (await room.api.get("/v1/deadletters")).json()["deadletters"]
        (letter,) = [each for each in letters if each["task"] == task]
        assert letter["reason"] == "task given up: lost 3 times, last: exit code 1"
        assert (letter["attempts"], letter["text"]) == (3, "paint the door")
        assert (letter["from"]["nick"], letter["to"]["nick"]) == (room.owner.nick, "alice")

        again = await room.api.post(f"/v1/deadletters/{letter['id']}/requeue")
        twice = await room.api.post(f"/v1/deadletters/{letter['id']}/requeue")
        (new,) = (await room.get(f"/{task}"))["retried_as"]
        assert again.json() == twice.json() == {"id": (await room.get(f"/{new}"))["request"]}
        shown = (await room.api.get(f"/v1/deadletters/{letter['id']}")).json()
        assert shown["requeued_as"] == again.json()["id"]


async def test_a_task_that_its_agent_failed_is_no_dead_letter(shared: TaskRoom):
    async with emptied(shared) as room:
        alice = await room.worker("alice")
        task = (await room.delegate("@alice"))["id"]
        await alice.take(task)
        await alice.say(task, TaskState.WORKING, attempt=1)
        await alice.say(task, TaskState.FAILED, "no idea")
        await room.parts.fold.settled(10)
        await room.folded("DEADLETTER")

        letters = (await room.api.get("/v1/deadletters")).json()["deadletters"]
        assert task not in [letter["task"] for letter in letters]


class _NoLetters:
    """A bus on which no dead letter arrives, as when the control plane is killed before it has written one."""

    def __init__(self, bus: MessageBusProvider) -> None:
        self._bus = bus

    def __getattr__(self, name: str) -> object:
        return getattr(self._bus, name)

    async def publish(self, subject: str, *args: object, **more: object) -> object:
        if subject.startswith("system.deadletter."):
            raise BusDisconnected("killed")
        return await self._bus.publish(subject, *args, **more)  # ty: ignore[invalid-argument-type]


async def letters_of(desk: TaskDesk, row: TaskRow) -> int:
    subject = subjects.deadletter(subjects.inbox(row.worker, row.requester))
    return len([m async for m in desk.admin.replay("DEADLETTER", subjects=(subject,))])


async def test_a_letter_that_a_crash_left_out_is_written_once_by_the_next_start(tmp_path: Path):
    async with open_desk(tmp_path, "memory") as desk:
        ann, bob = await desk.worker("ann"), await desk.worker("bob")
        row = await desk.taken(bob, await desk.ask(ann, bob.uid))
        await desk.settled()
        desk.task_clerk._bus = _NoLetters(desk.bus)  # ty: ignore[invalid-assignment]
        row = await given_up_by(desk, bob, row)
        assert await letters_of(desk, row) == 0
        next_clerk = desk._task_clerk(desk.database)
        await desk.database.write(next_clerk._begin)
        await next_clerk.sweep()
        assert await letters_of(desk, row) == 1
        again = desk._task_clerk(desk.database)
        await desk.database.write(again._begin)
        await again.sweep()
        assert await letters_of(desk, row) == 1


async def given_up_by(desk: TaskDesk, worker: Worker, row: TaskRow) -> TaskRow:
    record = following(row, TaskState.FAILED, "lost 3 times")
    assert record.event is not None
    event = gave_up(record.event, 3)
    record = replace(record, event=event, task=apply(json.loads(row.snapshot), event), lost=3)
    stored = await worker.bus.publish(
        record.subject(worker.uid),
        record.encode(),
        metadata=chain_headers(worker.uid, row.id, row.seq),
    )
    assert stored is not None
    return await desk.task(row.id, stored.sequence)
