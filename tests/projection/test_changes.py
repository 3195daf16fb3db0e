"""Telling waiters in this process."""

from __future__ import annotations

import asyncio

import pytest

from postroom.errors import Refused
from postroom.projection import changes as module
from postroom.projection.changes import (
    ALERTS,
    MAIL,
    Change,
    Changes,
    Signal,
    of_agent,
    of_chat,
    of_message,
    of_project,
)

pytestmark = pytest.mark.anyio

NEW = Change("mail", 1, "m", "alice", "bob")
SECONDS = 5.0


@pytest.mark.parametrize(
    "topic", [MAIL, of_message("m"), of_agent("alice"), of_agent("bob"), of_chat("bob", "alice")]
)
async def test_a_new_message_is_told_once_to_everybody_whom_it_concerns(topic: module.Topic):
    changes = Changes()
    with changes.listen(topic, of_message("m")) as listener:
        changes.publish([NEW])
        assert await listener.next(SECONDS) == NEW
        assert await listener.next(0) is Signal.QUIET


@pytest.mark.parametrize("topic", [of_message("n"), of_agent("eve"), of_project("p"), ALERTS])
async def test_nobody_else_is_told(topic: module.Topic):
    changes = Changes()
    with changes.listen(topic) as listener:
        changes.publish([NEW])
        assert await listener.next(0) is Signal.QUIET


@pytest.mark.requirement("client-stream-resumes")
async def test_a_slow_listener_is_told_of_a_gap_and_then_goes_on():
    changes = Changes()
    with changes.listen(MAIL, limit=3) as listener:
        changes.publish([NEW] * 10)
        assert await listener.next(SECONDS) is Signal.GAP
        assert await listener.next(0) is Signal.QUIET
        changes.publish([NEW])
        assert await listener.next(SECONDS) == NEW


async def test_a_waiter_reads_again_after_each_change_until_it_is_done():
    changes = Changes()
    values = [1]

    async def read() -> int:
        return values[-1]

    waiting = asyncio.create_task(changes.until(of_message("m"), read, lambda n: n == 3, SECONDS))
    for value in (2, 3):
        await asyncio.sleep(0)
        values.append(value)
        changes.publish([NEW])
    assert await waiting == 3


async def test_a_change_between_the_reading_and_the_waiting_is_not_missed():
    changes = Changes()
    values = [1]

    async def read() -> int:
        value = values[-1]
        if value == 1:
            values.append(2)
            changes.publish([NEW])
        return value

    assert await changes.until(of_message("m"), read, lambda n: n == 2, SECONDS) == 2


async def test_after_the_timeout_the_last_reading_is_returned():
    async def read() -> int:
        return 1

    assert await Changes().until(MAIL, read, lambda n: n == 2, 0.01) == 1


async def test_closing_ends_every_wait_at_once():
    changes = Changes()
    with changes.listen(MAIL) as listener:
        waiting = asyncio.create_task(listener.next(3600))
        await asyncio.sleep(0)
        changes.close()
        assert await waiting is Signal.CLOSED
    with changes.listen(MAIL) as late:
        assert await late.next(3600) is Signal.CLOSED


async def test_too_many_listeners_are_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "MAX_WATCHES", 1)
    changes = Changes()
    with changes.listen(MAIL), pytest.raises(Refused), changes.listen(MAIL):
        pass
    assert changes.listening == 0
