"""Faults of several replicas, each seen in the A2A SDK 1.3.0 (two handlers of its `a2a.server.cluster`, one SQLite).

Here: three processes that serve one agent over HTTP, on one nats-server. What the SDK did is said at each test.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing

import pytest

from library.faults.conftest import Fleet, until
from library.faults.http import Caller, Refusal, message, state
from postroom_a2a.rpc import Code

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("replicas-one-runner")]

_names = iter(range(1_000_000))


def fresh() -> str:
    """A name that no test of this run has used, also when one is repeated."""
    return f"n{next(_names)}"


async def begun(caller: Caller, text: str) -> str:
    """Id of a task that goes on."""
    return (await caller.send(text, at_once=True))["id"]


async def settled(caller: Caller, task: str) -> dict[str, object]:
    """The task once nobody works on it."""
    async with asyncio.timeout(30):
        while state(found := await caller.get(task)) in {"submitted", "working"}:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    return found


@pytest.mark.parametrize("kind", ["stubborn", "pausing"])
async def test_cancel_on_one_replica_then_output_on_another_stays_canceled(
    fleet: Fleet, kind: str
) -> None:
    """SDK: ended COMPLETED in 6 of 6 trials, though the cancel was answered with CANCELED.

    `pausing` has an await between the last artifact and the end: the SDK kept the cancel there, and its agent heard of
    it only at its next save.
    """
    one, two, three = fleet.callers
    name = fresh()
    task = await begun(one, f"{kind} {name}")
    await fleet.noted(name, "holds")
    canceling = asyncio.create_task(two.cancel(task))
    await fleet.noted(name, "deaf")
    fleet.let_go(name)
    assert state(await canceling) == "canceled"
    await until(lambda: fleet.words(name)[-1] in {"end", "stopped"})
    for caller in (one, two, three):
        found = await caller.get(task)
        assert state(found) == "canceled"
        with pytest.raises(Refusal) as refused:
            await caller.cancel(task)
        assert refused.value.code == Code.TASK_NOT_CANCELABLE


async def test_a_cancel_at_another_replica_stops_an_agent_that_says_nothing(fleet: Fleet) -> None:
    """SDK: the agent learns of it at its next save, so a silent one runs on."""
    one, two, _ = fleet.callers
    name = fresh()
    task = await begun(one, f"hold {name}")
    await fleet.noted(name, "holds")
    assert state(await two.cancel(task)) == "canceled"
    await fleet.noted(name, "stopped")
    assert fleet.words(name) == ["begin", "holds", "stopped"]


async def test_a_cancel_against_a_concurrent_save_is_not_lost(fleet: Fleet) -> None:
    """SDK, SQLite: both writers got one version number, and the cancel was lost."""
    one, two, three = fleet.callers
    for caller in (two, three, one):
        name = fresh()
        task = await begun(one, f"steps {name}")
        async with aclosing(two.subscribe(task)) as events:
            async for _, event in events:
                if "artifactUpdate" in event:
                    break
        assert state(await caller.cancel(task)) == "canceled"
        await fleet.noted(name, "stopped")
        pieces = len((await one.get(task))["artifacts"][0]["parts"])
        assert state(await three.get(task)) == "canceled"
        assert len((await two.get(task))["artifacts"][0]["parts"]) == pieces


async def test_a_follow_up_at_another_replica_waits_for_the_agent_that_runs(fleet: Fleet) -> None:
    """SDK: both executors ran, artifacts interleaved, the last artifact of the loser was missing."""
    one, two, _ = fleet.callers
    name = fresh()
    first = await one.send(message(f"hold {name}"), at_once=True)
    await fleet.noted(name, "holds")
    more = message(f"work {name}", taskId=first["id"], contextId=first["contextId"])
    following = asyncio.create_task(two.send(more))
    async with aclosing(two.subscribe(first["id"])) as events:
        await anext(events)
        assert fleet.words(name) == ["begin", "holds"]
        fleet.let_go(name)
        await settled(one, first["id"])
    (end,) = await asyncio.gather(following, return_exceptions=True)
    if isinstance(end, Refusal):
        assert end.code == Code.UNSUPPORTED_OPERATION  # the task had ended before its turn
    assert fleet.words(name) == ["begin", "holds", "end"]
    assert state(await one.get(first["id"])) == "completed"


async def test_an_answer_with_only_a_task_id_goes_on_with_the_task_at_any_replica(
    fleet: Fleet,
) -> None:
    """SDK: made up a context, marked the task FAILED for the mismatch, and cancelled the run."""
    one, two, three = fleet.callers
    for other in (two, three, one):
        name = fresh()
        asked = await one.send(f"ask {name}")
        assert state(asked) == "input-required"
        done = await other.send(message(f"work {name}", taskId=asked["id"]))
        assert state(done) == "completed"
        assert done["contextId"] == asked["contextId"]
        assert fleet.words(name) == ["begin", "begin", "end"]


async def test_a_follow_up_with_only_a_task_id_leaves_the_running_task_alone(fleet: Fleet) -> None:
    """SDK: B failed with a context mismatch, marked the task FAILED, and A's run was cancelled."""
    one, two, _ = fleet.callers
    name = fresh()
    task = await begun(one, f"hold {name}")
    await fleet.noted(name, "holds")
    following = asyncio.create_task(two.send(message(f"work {name}", taskId=task)))
    assert state(await two.get(task)) == "working"
    fleet.let_go(name)
    assert state(await settled(two, task)) == "completed"
    await asyncio.gather(following, return_exceptions=True)
    assert fleet.words(name) == ["begin", "holds", "end"]


async def test_the_same_message_id_twice_is_one_task_that_is_done_once(fleet: Fleet) -> None:
    """SDK: the executor ran twice, two tasks."""
    one, two, _ = fleet.callers
    name = fresh()
    said = message(f"work {name}")
    first, second = await one.send(said), await two.send(said)
    assert first["id"] == second["id"]
    assert state(second) == "completed"
    other = {**said, "parts": message("another question")["parts"]}
    with pytest.raises(Exception, match=first["id"]):
        await two.send(other)
    assert fleet.words(name) == ["begin", "end"]


async def test_the_same_message_id_at_the_same_moment_on_three_replicas_is_done_once(
    fleet: Fleet,
) -> None:
    """SDK: each replica ran it."""
    name = fresh()
    said = message(f"hold {name}")
    sending = [
        asyncio.create_task(caller.send(said)) for caller in (*fleet.callers, fleet.callers[0])
    ]
    await fleet.noted(name, "holds")
    fleet.let_go(name)
    answers = await asyncio.gather(*sending)
    assert {answer["id"] for answer in answers} == {answers[0]["id"]}
    assert {state(answer) for answer in answers} == {"completed"}
    assert fleet.words(name) == ["begin", "holds", "end"]


async def test_the_same_message_id_that_is_answered_without_a_task_is_done_once(
    fleet: Fleet,
) -> None:
    name = fresh()
    said = message(f"say {name}")
    answers = [await caller.send(said) for caller in fleet.callers]
    assert {answer["messageId"] for answer in answers} == {answers[0]["messageId"]}
    assert fleet.words(name) == ["begin"]


async def test_a_runner_killed_in_mid_task_leaves_no_task_at_work(fleet: Fleet) -> None:
    """SDK: other replicas read the last state for ever: no lease, no takeover, no redelivery."""
    one, two, _ = fleet.callers
    runner = await fleet.start()
    names = [fresh() for _ in range(3)]
    waiting = [
        asyncio.create_task(runner.caller.send(f"hold {names[0]}", at_once=True)),
        asyncio.create_task(runner.caller.send(f"hold {names[1]}", at_once=True)),
    ]
    tasks = [(await each)["id"] for each in waiting]
    said = message(f"hold {names[2]}")
    third = (await runner.caller.send(said, at_once=True))["id"]
    for name in names:
        await fleet.noted(name, "holds")
    elsewhere = asyncio.create_task(one.send(said))
    following = two.subscribe(tasks[1])
    assert state((await anext(following))[1]["task"]) == "working"

    await runner.kill()

    assert state(await one.get(tasks[0])) == "failed"
    text = json.dumps(await two.get(tasks[0]))
    assert "ended while it worked" in text
    assert state(await elsewhere) == "failed"  # who waited at another replica is told
    with pytest.raises(Refusal):
        await anext(following)
    with pytest.raises(Refusal) as refused:
        await two.cancel(tasks[1])
    assert refused.value.code == Code.TASK_NOT_CANCELABLE
    assert (await two.send(said))["id"] == third
    for name in names:
        assert fleet.words(name) == ["begin", "holds"]
    fleet.replicas.remove(runner)
    await runner.caller.http.aclose()


async def test_a_task_that_waits_for_an_answer_outlives_its_replica(fleet: Fleet) -> None:
    one = fleet.callers[0]
    runner, name = await fleet.start(), fresh()
    asked = await runner.caller.send(f"ask {name}")
    await runner.kill()
    done = await one.send(message(f"work {name}", taskId=asked["id"]))
    assert state(done) == "completed"
    assert fleet.words(name) == ["begin", "begin", "end"]
    fleet.replicas.remove(runner)
    await runner.caller.http.aclose()


async def test_tasks_that_wait_for_an_answer_keep_no_asyncio_task(fleet: Fleet) -> None:
    """SDK: 47 KiB and 4 asyncio tasks each, for ever."""
    replica = fleet.replicas[0]
    for _ in range(20):  # the parts that grow once
        await replica.caller.send(f"ask {fresh()}")
    before, memory = await replica.load(), rss(replica.pid)
    for _ in range(100):
        assert state(await replica.caller.send(f"ask {fresh()}")) == "input-required"
    after = await replica.load()
    assert after["tasks"] <= before["tasks"] + 2  # of the request itself
    assert (rss(replica.pid) - memory) / 100 < 12_000


def rss(pid: int) -> int:
    """Bytes of a process that no file backs."""
    with open(f"/proc/{pid}/status") as status:  # noqa: PTH123
        (line,) = (line for line in status if line.startswith("RssAnon:"))
    return 1024 * int(line.split()[1])
