"""Presence by calls: in memory at once, on disk once a minute."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from postroom.directory.agents import Directory
from postroom.directory.presence import CALL_LASTS, PAUSE, Callers
from postroom.store.agents import Agent
from postroom.store.database import Database
from postroom.store.migrate import migrate

pytestmark = pytest.mark.anyio


class Room:
    """A directory with one external agent, and a clock that the test sets."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.directory = Directory(database)
        self.now = 1_000_000.0
        self.came = 0
        self.callers = self.restarted()

    def restarted(self) -> Callers:
        callers = Callers(self.database, self.directory, clock=lambda: self.now)
        callers.changed = self.count
        return callers

    def count(self) -> None:
        self.came += 1

    async def noted(self, agent: Agent) -> float | None:
        return (await self.directory.get(agent.uid)).seen_at


@pytest.fixture
async def room(tmp_path: Path) -> AsyncIterator[Room]:
    async with Database(tmp_path / "projection.db") as database:
        await migrate(database)
        yield Room(database)


async def test_who_called_is_there_for_a_while(room: Room):
    otto = await room.directory.register("otto", "external")
    assert not room.callers.there(otto.uid)
    assert room.callers.seen_at(otto.uid) is None

    room.callers.called(otto.uid)
    room.callers.called(otto.uid)
    assert (room.callers.there(otto.uid), room.came) == (True, 1)

    room.now += CALL_LASTS
    assert not room.callers.there(otto.uid)
    assert room.callers.seen_at(otto.uid) == room.now - CALL_LASTS


async def test_who_has_a_call_open_is_there(room: Room):
    otto = await room.directory.register("otto", "external")
    with room.callers.waiting(otto.uid):
        with room.callers.waiting(otto.uid):
            room.now += 2 * CALL_LASTS
        assert room.callers.there(otto.uid)
        assert room.callers.seen_at(otto.uid) == room.now
        room.now += 2 * CALL_LASTS
    assert room.callers.there(otto.uid)


async def test_a_call_is_written_at_most_once_a_minute_and_survives(room: Room):
    otto = await room.directory.register("otto", "external")
    await room.callers.note(otto.uid)
    first = room.now
    room.now += PAUSE - 1
    await room.callers.note(otto.uid)
    assert await room.noted(otto) == first
    room.now += 1
    await room.callers.note(otto.uid)
    assert await room.noted(otto) == room.now

    later = room.restarted()
    await later.open()
    assert later.seen_at(otto.uid) == room.now
    assert later.called_before(otto.uid, room.now + PAUSE)
    assert not later.called_before(otto.uid, room.now + PAUSE + 1)


async def test_what_is_only_in_memory_is_written_when_it_is_flushed(room: Room):
    otto, paul = [await room.directory.register(nick, "external") for nick in ("otto", "paul")]
    room.callers.called(otto.uid)
    with room.callers.waiting(paul.uid):
        await room.callers.flush()
    assert await room.noted(otto) == await room.noted(paul) == room.now


async def test_nobody_was_given_anything_who_never_called(room: Room):
    otto = await room.directory.register("otto", "external")
    await room.callers.open()
    assert not room.callers.called_before(otto.uid, 1.0)
