"""Waiters of tasks that never complete: each reads once, ends at its deadline, and leaves nothing."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from postroom.protocol.principal import KEY, USUAL_SCOPES, Principal
from postroom.tasks.operations import AgentTasks
from postroom_a2a.task_state import TaskState
from tests.control.taskroom import Hand, TaskRoom, emptied, task_room

pytestmark = pytest.mark.anyio

WAITERS = 1000
SECONDS = 0.5


@pytest.fixture(scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[TaskRoom]:
    async with task_room(tmp_path_factory.mktemp("room")) as room:
        yield room


def reads(room: TaskRoom) -> int:
    """The reads of the store so far."""
    return room.parts.database.statistics().reads


async def begun(room: TaskRoom) -> tuple[Hand, str]:
    """A task that its worker has begun, and never ends."""
    alice = await room.worker("alice")
    task = (await room.delegate("@alice"))["id"]
    await alice.take(task)
    await alice.say(task, TaskState.WORKING, attempt=1)
    return alice, task


@pytest.mark.requirement("task-waiters-end")
async def test_waiters_of_a_task_that_never_ends_read_once_end_in_time_and_leave_nothing(
    shared: TaskRoom,
):
    async with emptied(shared) as room:
        (_, task), parts = await begun(room), room.parts
        listening, topics = parts.changes.listening, set(parts.changes._listeners)
        running = asyncio.all_tasks()
        before = reads(room)
        only = room.owner.uid  # a caller that does not see what is others'
        begun_at = asyncio.get_running_loop().time()

        waiting = [
            asyncio.create_task(
                parts.tasks.wait(task, SECONDS, settled=bool(n % 2), only=only if n % 3 else "")
            )
            for n in range(WAITERS)
        ]
        await asyncio.sleep(0)
        kept = weakref.WeakSet(waiting)
        views = await asyncio.gather(*waiting)

        assert asyncio.get_running_loop().time() - begun_at >= SECONDS
        assert all(view.timed_out and view.state is TaskState.WORKING for view in views)
        # The doors of workers follow who came, with a read of their own.
        assert 0 <= reads(room) - before - WAITERS < 5
        assert (parts.changes.listening, set(parts.changes._listeners)) == (listening, topics)
        del waiting, views
        await asyncio.sleep(0)
        gc.collect()
        assert not kept
        assert asyncio.all_tasks() - running == set()


async def test_a_change_wakes_all_waiters_without_a_further_read(
    shared: TaskRoom,
):
    async with emptied(shared) as room:
        (alice, task), parts = await begun(room), room.parts
        listening = parts.changes.listening
        before = reads(room)
        waiting = [asyncio.create_task(parts.tasks.wait(task, 60)) for _ in range(WAITERS)]
        while parts.changes.listening < listening + WAITERS:  # noqa: ASYNC110 (each has its first turn)
            await asyncio.sleep(0)
        while reads(room) < before + WAITERS:  # noqa: ASYNC110
            await asyncio.sleep(0)
        await alice.say(task, TaskState.CANCELED, "enough")
        views = await asyncio.gather(*waiting)

        assert {view.state for view in views} == {TaskState.CANCELED}
        # Beside the waiters' first reads, what writes and folds the end reads, a bounded number of times.
        assert reads(room) - before < WAITERS + 20
        assert parts.changes.listening == listening


async def test_who_follows_a_task_that_never_ends_and_goes_leaves_nothing(shared: TaskRoom):
    async with emptied(shared) as room:
        (alice, task), parts = await begun(room), room.parts
        row = await room.row(task)
        listening, topics = parts.changes.listening, set(parts.changes._listeners)
        owner = room.owner
        me = Principal(owner.uid, owner.org, owner.nick, owner.kind, USUAL_SCOPES, KEY)
        tasks = AgentTasks(parts.tasks, parts.database, parts.changes, alice.agent, me)

        async def follow() -> None:
            async with aclosing(tasks.follow(task, me.uid, row.seq)) as changes:
                async for _ in changes:
                    raise AssertionError("nothing happens")

        followers = [asyncio.create_task(follow()) for _ in range(WAITERS)]
        while parts.changes.listening < listening + WAITERS:  # noqa: ASYNC110
            await asyncio.sleep(0)
        for follower in followers:
            follower.cancel()
        await asyncio.gather(*followers, return_exceptions=True)

        assert (parts.changes.listening, set(parts.changes._listeners)) == (listening, topics)
