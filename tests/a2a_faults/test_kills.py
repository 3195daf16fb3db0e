"""SIGKILL of any process of a post room at any moment, while A2A clients send tasks over HTTP and follow them.

Each accepted task ends once, who follows it and comes back where it was sees every change once, and every change is
pushed. The seed of a run is printed; `A2A_FAULTS_SEED` runs it again, as far as other processes let it.
"""

from __future__ import annotations

import asyncio
import os
import random
import secrets
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, TypeVar

import httpx2
import pytest

from library.faults.http import Caller, Refusal, message, state
from postroom_a2a.rpc import Code
from tests.a2a_faults.room import Door, door
from tests.e2e.conftest import PostRoom, room
from tests.e2e.taskwork import assert_all_ended
from tests.push.receivers import Receiver, receiver

__all__ = ["room"]

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("task-kill-ends-once")]

STRIKES = ("kill_control", "kill_server", "kill_sidecar", "kill_agent")
FINAL = frozenset({"completed", "failed", "canceled", "rejected"})
AWAY = (httpx2.TransportError, OSError, KeyError, ValueError)
"""A post room that is gone, or half up, as a client sees it."""

T = TypeVar("T")


@dataclass
class Followed:
    """A task, and every event that its follower has seen."""

    id: str
    name: str
    said: dict[str, Any]
    seen: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    tries: int = 0

    def finals(self, events: list[tuple[str, dict[str, Any]]]) -> int:
        updates = [event["statusUpdate"] for _, event in events if "statusUpdate" in event]
        return sum(state(update) in FINAL for update in updates)


async def patient(desk: Door, ask: Callable[[Caller], Awaitable[T]]) -> T:
    """Ask until the post room answers; what it refuses for a reason that stays is a fault."""
    async with asyncio.timeout(120):
        while True:
            try:
                async with desk.callers(1) as (caller,):
                    return await ask(caller)
            except AWAY:
                pass
            except Refusal as refused:
                if refused.code not in {Code.INTERNAL_ERROR, Code.SERVER_BUSY}:
                    raise
            await asyncio.sleep(0.05)


async def follow(desk: Door, task: Followed) -> None:
    """See a task's events to its end, however often the stream breaks."""

    async def rest(caller: Caller) -> None:
        after = task.seen[-1][0] if task.seen else "0"
        task.tries += 1
        try:
            async with aclosing(caller.subscribe(task.id, after=after)) as events:
                async for event in events:
                    task.seen.append(event)
        except Refusal as refused:
            if refused.code != Code.UNSUPPORTED_OPERATION:
                raise
            assert task.finals(task.seen), "it says that nothing follows, and nothing has ended it"
        if not task.finals(task.seen):
            raise httpx2.ReadError("the stream ended before the task")

    await patient(desk, rest)


async def work(desk: Door, hook: Receiver, kills: int, seed: int) -> list[Followed]:
    rng = random.Random(seed)
    over = asyncio.Event()
    followed: list[Followed] = []

    async def send(followers: asyncio.TaskGroup) -> None:
        while not over.is_set():
            name = secrets.token_hex(4)
            said = message(f"some {name}")
            push = {"url": f"{hook.url}/{name}"}

            async def ask(
                caller: Caller, said: dict[str, Any] = said, push: dict[str, str] = push
            ) -> dict[str, Any]:
                return await caller.send(said, at_once=True, taskPushNotificationConfig=push)

            task = Followed((await patient(desk, ask))["id"], name, said)
            followed.append(task)
            await followers.create_task(follow(desk, task))

    async def strike() -> None:
        for _ in range(kills):
            # A moment that nothing else decides; the kill itself waits for what it needs.
            await asyncio.sleep(rng.uniform(0.0, 0.7))
            await asyncio.to_thread(getattr(desk, rng.choice(STRIKES)))
        over.set()

    async with asyncio.TaskGroup() as tasks:
        for _ in range(3):
            tasks.create_task(send(tasks))
        tasks.create_task(strike())
    return followed


async def check(desk: Door, task: Followed) -> None:
    """What the post room says afterwards is what the follower saw, each event once.

    A task is done unless its worker was lost during each of its attempts, which its end says then.
    """

    async def again(caller: Caller) -> None:
        assert (await caller.send(task.said))["id"] == task.id
        found = await caller.get(task.id)
        if state(found) == "completed":
            assert desk.notes(task.name).count("did") >= 1
        else:
            assert "lost" in found["status"]["message"]["parts"][0]["text"], found["status"]
        whole = [event async for event in caller.subscribe(task.id, after="0")]
        assert task.seen == whole, f"{task.id}, followed {task.tries} times"

    await patient(desk, again)
    numbers = [int(number) for number, _ in task.seen]
    assert numbers == sorted(set(numbers))
    assert task.finals(task.seen) == 1


async def pushed(hook: Receiver, task: Followed) -> None:
    """Every change of a task has been pushed, in order; one that is pushed twice has the same id."""

    def bodies() -> list[dict[str, Any]]:
        first = {got.id: got.said for got in hook.got if got.path.endswith(f"/{task.name}")}
        return list(first.values())

    wanted = [event for _, event in task.seen]
    async with asyncio.timeout(60):
        while len(bodies()) < len(wanted):  # noqa: ASYNC110 (the receiver counts; the schedule decides)
            await asyncio.sleep(0.05)
    assert bodies() == wanted


@pytest.mark.parametrize(
    "kills", [3, pytest.param(40, marks=[pytest.mark.slow, pytest.mark.timeout(900)])]
)
async def test_sigkill_at_any_moment_loses_and_doubles_nothing_over_http(
    room: PostRoom, kills: int
) -> None:
    seed = int(os.environ.get("A2A_FAULTS_SEED") or secrets.randbelow(1 << 32))
    print(f"seed {seed}")  # noqa: T201 (shown with a failure)
    async with receiver() as hook:
        room.env |= {"POSTROOM_EGRESS_ALLOW_PRIVATE": f"127.0.0.1:{hook.port}"}
        await asyncio.to_thread(room.up)
        desk = await asyncio.to_thread(door, room)
        followed = await work(desk, hook, kills, seed)
        for task in followed:
            await check(desk, task)
            await pushed(hook, task)
        await asyncio.to_thread(assert_all_ended, room)
    assert len(followed) >= 3
    tries = sum(task.tries for task in followed)
    print(f"{len(followed)} tasks, followed {tries} times, {len(hook.got)} pushes")  # noqa: T201
