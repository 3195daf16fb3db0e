"""Callers that wait over HTTP: completion comes to them by the log. Nobody reads, polls or wakes up in between."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from postroom.projection import tail
from postroom.projection.changes import ChangeListener
from postroom_a2a import json_operations
from postroom_a2a.task_state import TaskState
from tests.control.taskroom import KEY, Hand, TaskRoom, emptied, task_room

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("task-waiters-end")]

CALLERS, STREAMS, TASKS = 960, 40, 8
QUIET = 0.4
"""Seconds in which a loop that polls would show: beats are far shorter in these tests."""


@pytest.fixture(scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[TaskRoom]:
    async with task_room(tmp_path_factory.mktemp("room")) as room:
        yield room


class Waiting:
    """A connection with one call on it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def until(self, text: bytes) -> bytes:
        """What came up to a text."""
        async with asyncio.timeout(30):
            return await self.reader.readuntil(text)

    async def close(self) -> None:
        self.writer.close()
        await self.writer.wait_closed()


def said(name: str, **more: Any) -> dict[str, Any]:
    return {"messageId": name, "role": "ROLE_USER", "parts": [{"text": name}], **more}


async def calling(room: TaskRoom, nick: str, method: str, params: dict[str, Any]) -> Waiting:
    reader, writer = await asyncio.open_connection("127.0.0.1", room.site.port)
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    head = (
        f"POST /a2a/{nick} HTTP/1.1\r\nHost: {room.site.host}\r\nAuthorization: Bearer {KEY}\r\n"
        f"A2A-Version: 1.0\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    writer.write(head.encode() + body)
    return Waiting(reader, writer)


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not true():  # noqa: ASYNC110 (what a server holds has no event)
            await asyncio.sleep(0.005)


def reads(room: TaskRoom) -> int:
    return room.parts.database.statistics().reads


async def rested(room: TaskRoom) -> int:
    """The reads so far, once all calls wait: until then they look for the task of their message."""
    async with asyncio.timeout(30):
        before = -1
        while before != (now := reads(room)):
            before = now
            await asyncio.sleep(0.1)
    return before


async def begin(room: TaskRoom, hand: Hand, names: list[str]) -> list[str]:
    """Tasks that their worker has taken."""
    tasks = []
    for name in names:
        body = {"message": said(name), "configuration": {"returnImmediately": True}}
        one = await calling(room, hand.agent.nick, "SendMessage", body)
        head = await one.until(b"\r\n\r\n")
        size = int(head.lower().split(b"content-length:")[1].split()[0])
        tasks.append(json.loads(await one.reader.readexactly(size))["result"]["task"]["id"])
        await one.close()
    for task in tasks:
        await hand.take(task)
        await hand.say(task, TaskState.WORKING, attempt=1)
    return tasks


@asynccontextmanager
async def waiters(
    room: TaskRoom, hand: Hand, names: list[str], tasks: list[str], callers: int, streams: int
) -> AsyncGenerator[tuple[list[Waiting], list[Waiting]]]:
    """Calls that wait for these tasks: sends that block, which are repeats, and streams."""
    before = room.parts.changes.listening
    nick = hand.agent.nick
    sends: list[Waiting] = []
    follows: list[Waiting] = []
    try:
        for number in range(callers):
            params = {"message": said(names[number % len(names)])}
            sends += [await calling(room, nick, "SendMessage", params)]
        for number in range(streams):
            params = {"id": tasks[number % len(tasks)]}
            follows += [await calling(room, nick, "SubscribeToTask", params)]
        await until(lambda: room.parts.changes.listening >= before + callers + streams)
        for each in follows:
            await each.until(b'{"task":')
        yield sends, follows
    finally:
        for each in (*sends, *follows):
            each.writer.close()
        await until(lambda: room.parts.changes.listening <= before)


def listeners() -> int:
    """How many the process holds, also those that a room of an earlier test has left."""
    gc.collect()
    return sum(isinstance(each, ChangeListener) for each in gc.get_objects())


async def test_1000_callers_that_wait_cost_no_read_of_the_store(
    shared: TaskRoom, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail, "STREAM_BEAT", 0.02)
    async with emptied(shared) as room:
        hand = await room.worker("desk")
        names = [f"{hand.uid}-{number}" for number in range(TASKS)]
        tasks = await begin(room, hand, names)
        async with waiters(room, hand, names, tasks, CALLERS, STREAMS) as (sends, follows):
            before = await rested(room)
            await asyncio.sleep(QUIET)
            assert reads(room) - before < 10  # the room's own

            for task in tasks:  # what happens comes to the streams; it is not read for each
                await hand.make(task, "one")
            for each in follows:
                await each.until(b'"artifactUpdate"')
            assert reads(room) - before < 10 + 3 * TASKS  # of the worker's own hand

            for task in tasks:
                await hand.say(task, TaskState.COMPLETED, "done")
            answers = await asyncio.gather(*(each.until(b"TASK_STATE_COMPLETED") for each in sends))
            await asyncio.gather(*(each.until(b"TASK_STATE_COMPLETED") for each in follows))
            assert all(answer.startswith(b"HTTP/1.1 200") for answer in answers)
            # Each send reads its answer at most once, and streams read nothing.
            assert reads(room) - before < 10 + 5 * TASKS + CALLERS


async def test_a_caller_that_goes_is_forgotten_at_once(shared: TaskRoom) -> None:
    async with emptied(shared) as room:
        hand = await room.worker("desk")
        names = [f"{hand.uid}-{number}" for number in range(2)]
        tasks = await begin(room, hand, names)
        tasks_before = len(asyncio.all_tasks())
        async with waiters(room, hand, names, tasks, 50, 20) as (sends, follows):
            listening = room.parts.changes.listening
            for each in (*sends[:25], *follows[:10]):
                each.writer.close()
            # Nothing is written to them: their end alone has to do it.
            await until(lambda: room.parts.changes.listening == listening - 35)
        await until(lambda: len(asyncio.all_tasks()) <= tasks_before)


async def test_waiters_of_a_task_that_never_ends_end_at_their_deadline_and_leave_nothing(
    shared: TaskRoom, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with emptied(shared) as room:
        hand = await room.worker("desk")
        names = [f"{hand.uid}-never"]
        tasks = await begin(room, hand, names)
        monkeypatch.setattr(
            json_operations, "WAIT", 3.0
        )  # all of them wait at once before the first ends
        before, kept = room.parts.changes.listening, listeners()
        async with waiters(room, hand, names, tasks, 20, 5) as (sends, follows):
            for each in sends:
                answer = await each.until(b"TASK_STATE_WORKING")
                assert answer.startswith(b"HTTP/1.1 200")
            for each in follows:
                await each.until(b"\r\n0\r\n\r\n")  # the stream ends in order; the task goes on
            assert room.parts.changes.listening == before
        assert listeners() <= kept
