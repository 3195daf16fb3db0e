"""The faults of `test_replicas` in a post room: control plane, nats-server and sidecar are three processes.

Callers come over HTTP, each on a connection of its own. Below: SIGKILL of each process, as an A2A client sees it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Iterator
from contextlib import aclosing, suppress
from typing import Any

import httpx2
import pytest

from library.faults.http import Caller, Refusal, message, state
from postroom_a2a.rpc import Code
from tests.a2a_faults.room import Door, door
from tests.e2e.conftest import PostRoom, running_room

pytestmark = pytest.mark.anyio

_names = iter(range(1_000_000))


def fresh() -> str:
    """A name that no test of this run has used, also when one is repeated."""
    return f"n{next(_names)}"


@pytest.fixture(scope="module")
def room() -> Iterator[PostRoom]:
    with running_room() as room:
        yield room


@pytest.fixture(scope="module")
def desk(room: PostRoom) -> Door:
    return door(room)


@pytest.fixture
async def callers(desk: Door) -> AsyncGenerator[list[Caller]]:
    async with desk.callers(3) as made:
        yield made


async def begun(caller: Caller, text: str) -> str:
    """Id of a task that goes on."""
    return (await caller.send(text, at_once=True))["id"]


async def ended(caller: Caller, task: str) -> dict[str, object]:
    """The task at its end, which a stream of its changes tells."""
    with suppress(Refusal):  # it has ended already
        async with aclosing(caller.subscribe(task)) as events:
            async for _ in events:
                pass
    return await caller.get(task)


async def end_by(cancel: Awaitable[dict[str, Any]]) -> str:
    """The end of the task that a cancel tells; one that came too late is refused."""
    try:
        return state(await cancel)
    except Refusal as refusal:
        if refusal.code != Code.TASK_NOT_CANCELABLE:
            raise
        return "completed"


async def test_cancel_on_one_connection_then_output_of_the_agent_has_one_end(
    desk: Door, callers: list[Caller]
) -> None:
    one, two, three = callers
    name = fresh()
    task = await begun(one, f"stubborn {name}")
    await asyncio.to_thread(desk.noted, name, "holds")
    canceling = asyncio.create_task(two.cancel(task))
    canceling_too = asyncio.create_task(three.cancel(task))
    async with aclosing(one.subscribe(task)) as events:
        await anext(events)
        desk.worker.let_go(name)
        seen = [event["statusUpdate"] async for _, event in events if "statusUpdate" in event]
    finals = {await end_by(canceling), await end_by(canceling_too), state(seen[-1])}
    finals |= {state(await caller.get(task)) for caller in callers}
    assert len(finals) == 1
    assert finals <= {"canceled", "completed"}


async def test_a_cancel_against_output_that_is_being_stored_is_not_lost(
    desk: Door, callers: list[Caller]
) -> None:
    one, two, _ = callers
    for _ in range(3):
        name = fresh()
        task = await begun(one, f"steps {name}")
        async with aclosing(one.subscribe(task)) as events:
            async for _, event in events:
                if "artifactUpdate" in event:
                    break
        assert state(await two.cancel(task)) == "canceled"
        assert desk.notes(name) == ["begins", "stopped"]
        assert state(await one.get(task)) == "canceled"


async def test_a_follow_up_on_another_connection_never_runs_a_task_twice(
    desk: Door, callers: list[Caller]
) -> None:
    one, two, _ = callers
    name = fresh()
    first = await one.send(f"hold {name}", at_once=True)
    await asyncio.to_thread(desk.noted, name, "holds")
    for more in (
        message(f"work {name}", taskId=first["id"], contextId=first["contextId"]),
        message(f"work {name}", taskId=first["id"]),
    ):
        with pytest.raises(Refusal) as refused:
            await two.send(more)
        assert refused.value.code == Code.UNSUPPORTED_OPERATION
    assert state(await two.get(first["id"])) == "working"
    desk.worker.let_go(name)
    assert state(await ended(two, first["id"])) == "completed"
    assert desk.notes(name) == ["begins", "holds", "did"]


async def test_an_answer_with_only_a_task_id_goes_on_with_the_task(
    desk: Door, callers: list[Caller]
) -> None:
    one, two, _ = callers
    name = fresh()
    asked = await one.send(f"ask {name}")
    assert state(asked) == "input-required"
    done = await two.send(message(name, taskId=asked["id"]))
    assert (state(done), done["contextId"]) == ("completed", asked["contextId"])
    assert desk.notes(name) == ["begins", "did"]


async def test_the_same_message_id_at_the_same_moment_is_one_task_that_is_done_once(
    desk: Door, callers: list[Caller]
) -> None:
    name = fresh()
    said = message(f"work {name}")
    answers = await asyncio.gather(*(caller.send(said) for caller in callers))
    answers.append(await callers[0].send(said))
    assert {answer["id"] for answer in answers} == {answers[0]["id"]}
    assert {state(answer) for answer in answers} == {"completed"}
    assert desk.notes(name) == ["begins", "did"]


async def test_tasks_that_wait_for_an_answer_cost_the_control_plane_next_to_no_memory(
    room: PostRoom, desk: Door, callers: list[Caller]
) -> None:
    """SDK: 47 KiB and 4 asyncio tasks each, for ever; here an asking task is rows of the database."""
    one = callers[0]

    async def ask(count: int) -> None:
        for _ in range(count):
            assert state(await one.send(f"ask {fresh()}")) == "input-required"

    await ask(10)
    before = memory(room.server["pid"])
    await ask(40)
    assert (memory(room.server["pid"]) - before) / 40 < 47 * 1024


def memory(pid: int) -> int:
    """Bytes of a process that no file backs."""
    with open(f"/proc/{pid}/status") as status:  # noqa: PTH123
        (line,) = (line for line in status if line.startswith("RssAnon:"))
    return 1024 * int(line.split()[1])


# ── SIGKILL ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("task-kill-ends-once")
async def test_a_sidecar_killed_in_mid_task_keeps_no_caller_waiting_in_vain(
    desk: Door, callers: list[Caller]
) -> None:
    one, two, _ = callers
    name = fresh()
    said = message(f"hold {name}")
    sending = asyncio.create_task(one.send(said))
    await asyncio.to_thread(desk.noted, name, "holds")
    (again,) = [asyncio.create_task(two.send(said))]
    await asyncio.to_thread(desk.kill_sidecar)
    await asyncio.to_thread(desk.noted, name, "holds", 2)
    desk.worker.let_go(name)
    first, second = await sending, await again
    assert (state(first), first["id"]) == ("completed", second["id"])
    assert desk.notes(name).count("did") == 1


@pytest.mark.requirement("task-kill-ends-once")
@pytest.mark.parametrize("strike", ["kill_server", "kill_control"])
async def test_after_a_kill_a_client_reads_repeats_and_goes_on_where_it_was(
    desk: Door, strike: str
) -> None:
    """GetTask answers again, SubscribeToTask replays what was missed, the message again is the same task."""
    name, said = fresh(), None
    async with desk.callers(2) as (one, two):
        said = message(f"hold {name}")
        task = (await one.send(said, at_once=True))["id"]
        await asyncio.to_thread(desk.noted, name, "holds")
        events = one.stream("SendStreamingMessage", {"message": said})
        seen = [await anext(events), await anext(events)]
        await asyncio.to_thread(getattr(desk, strike))
        if strike == "kill_control":
            with pytest.raises(httpx2.TransportError):
                await anext(events)
        desk.worker.let_go(name)
        if strike == "kill_server":  # the connection stands, and the stream goes on
            seen += [event async for event in events]
    async with desk.callers(2) as (one, two):
        assert (await two.send(said))["id"] == task
        assert state(await one.get(task)) == "completed"
        if strike == "kill_control":
            seen += [event async for event in one.subscribe(task, after=seen[-1][0])]
        whole = [event async for event in two.stream("SendStreamingMessage", {"message": said})]
        assert seen[1:] == whole[1:]  # the first one is the task as it was asked
    assert desk.notes(name).count("did") == 1
