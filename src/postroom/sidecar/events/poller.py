"""Asks the control plane what people say to the agent, and hands it on."""

from __future__ import annotations

import asyncio

from postroom.errors import PostroomError
from postroom.observe import get_logger
from postroom.sidecar.bus import BACKOFF
from postroom.sidecar.control_client import ControlClient
from postroom.sidecar.turns.control import ControlChannel

WAIT = 25.0
"""Seconds that one request waits for something."""

_log = get_logger(__name__)


async def poll(control: ControlClient, worker: str, channel: ControlChannel) -> None:
    """Ask until cancelled; while the control plane is away, with growing pauses."""
    failures = 0
    while True:
        try:
            records, following = await control.pending(worker, channel.after, WAIT)
        except PostroomError as error:
            failures += 1
            if failures == 1:
                _log.info("what people say to the agent is not known: %s", error)
            await asyncio.sleep(BACKOFF.delay(failures))
            continue
        failures = 0
        await channel.take(records, following)
