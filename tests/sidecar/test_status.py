"""How often a worker tells its state."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from postroom.bus.port import Stored
from postroom.protocol.presence import Presence, WorkerState
from postroom.sidecar import status as status_module
from postroom.sidecar.status import QUICK, SHORTEST_INTERVAL, STEADY_INTERVAL, StatusReporter
from tests.sidecar.test_outgoing import Log

pytestmark = pytest.mark.anyio

OWN = "a" * 32


class Told(Log):
    """A bus that keeps the states that were told."""

    def __init__(self) -> None:
        super().__init__()
        self.states: asyncio.Queue[WorkerState] = asyncio.Queue()
        self.confirmed: list[bool] = []

    async def publish(
        self,
        subject: str,
        payload: bytes,
        *,
        id: str = "",  # noqa: A002
        metadata: Mapping[str, str] | None = None,
        timeout: float = 5.0,
        confirm: bool = True,
    ) -> Stored | None:
        self.confirmed.append(confirm)
        self.states.put_nowait(Presence.decode(payload).state)

    async def next(self) -> WorkerState:
        return await asyncio.wait_for(self.states.get(), 10)


async def test_few_changes_are_told_at_once_and_many_one_a_second():
    status = StatusReporter(Told(), OWN, lambda: 0)

    pauses = [status._pause() for _ in range(2 * QUICK)]

    assert pauses[: QUICK - 1] == [SHORTEST_INTERVAL] * (QUICK - 1)
    assert pauses[-1] > STEADY_INTERVAL


async def test_a_state_that_came_and_went_is_not_told_again(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(status_module, "SHORTEST_INTERVAL", 0.0)
    told = Told()
    status = StatusReporter(told, OWN, lambda: 0)
    running = asyncio.create_task(status.run())
    try:
        assert await told.next() is WorkerState.STARTING
        status.touch()
        await asyncio.sleep(0)
        status.running()

        assert await told.next() is WorkerState.IDLE
        status.said("working", "")
        assert await told.next() is WorkerState.WORKING
        assert told.confirmed == [False] * 3
    finally:
        running.cancel()
