"""Tells the others what this worker is: its Agent Card on `system.discovery.<own>`.

It was made by the control plane, which checks what comes back; here it is only published.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from postroom.errors import PostroomError
from postroom.observe import get_logger
from postroom.protocol import subjects
from postroom.protocol.presence import BEAT_INTERVAL
from postroom.sidecar.wire import Wire

_log = get_logger(__name__)


class Announcer:
    """Announces one worker's card: at the start and after a change, looked for at every presence interval.

    Args:
        wire: the bus.
        own: uid of the worker.
        card: the worker's, {} for none.
    """

    def __init__(self, wire: Wire, own: str, card: Mapping[str, Any]) -> None:
        self._wire = wire
        self._subject = subjects.discovery(own)
        self._announced = b""
        self.card = dict(card)

    async def run(self) -> None:
        """Announce until cancelled."""
        while True:
            await self.announce()
            await asyncio.sleep(BEAT_INTERVAL)

    async def announce(self) -> None:
        """Announce the card if it is not what was announced last. A bus that is away is tried again later."""
        payload = json.dumps(self.card).encode() if self.card else b""
        if payload == self._announced:
            return
        try:
            await self._wire.publish(self._subject, payload, timeout=BEAT_INTERVAL)
        except PostroomError as error:
            _log.info("the card was not announced: %s", error)
            return
        self._announced = payload
