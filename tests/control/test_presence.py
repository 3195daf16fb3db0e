"""What is believed of a worker's word about itself."""

from __future__ import annotations

import pytest

from postroom.bus.port import Message
from postroom.directory.presence import PresenceBoard
from postroom.protocol import subjects
from postroom.protocol.presence import Presence, WorkerState
from tests.mail.desk import memory_bus

pytestmark = pytest.mark.anyio

UID = "a" * 32
NOW = 1_700_000_000.0


async def hear(board: PresenceBoard, state: WorkerState, at: float) -> Presence | None:
    payload = Presence(state, at, at).encode()
    await board._heard(Message("", UID, subjects.status(UID), payload, {}, NOW, 1))
    return board.of(UID)


async def test_a_status_from_the_future_counts_from_now_and_hides_no_later_one():
    async with memory_bus() as (bus, admin, _):
        board = PresenceBoard(bus, admin, clock=lambda: NOW)

        first = await hear(board, WorkerState.IDLE, 253_402_300_799.0)
        second = await hear(board, WorkerState.FAILED, NOW)

        assert first is not None
        assert first.at == NOW
        assert second is not None
        assert second.state is WorkerState.FAILED
