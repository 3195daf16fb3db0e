"""The state of each worker by its own status messages."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from postroom.bus.port import BusAdmin, Message, MessageBusProvider, Subscription
from postroom.errors import ProtocolViolation
from postroom.observe import get_logger
from postroom.protocol.presence import ONLINE, Presence
from postroom.protocol.streams import BY_NAME

log = get_logger(__name__)

FRESH = BY_NAME["PRESENCE"].max_age
"""Seconds for which a status message counts."""


class PresenceBoard:
    """The last status message of each worker.

    Args:
        bus: connection to core, where every worker's status arrives.
        admin: reads the status messages from before this process started.
        changed: called after each message that reports another state or trouble than the one before.
    """

    def __init__(
        self,
        bus: MessageBusProvider,
        admin: BusAdmin,
        clock: Callable[[], float] = time.time,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self._bus = bus
        self._admin = admin
        self._clock = clock
        self._changed = changed
        self._last: dict[str, Presence] = {}
        self._ran: dict[str, float] = {}
        self._subscription: Subscription | None = None

    async def open(self) -> None:
        """Begin to listen, then read what PRESENCE still holds."""
        self._subscription = await self._bus.subscribe("worker.*.status", self._heard)
        async for message in self._admin.replay("PRESENCE"):
            await self._heard(message)

    async def close(self) -> None:
        """Stop listening."""
        if self._subscription is not None:
            await self._subscription.close()

    async def _heard(self, message: Message) -> None:
        try:
            said = Presence.decode(message.payload)
        except ProtocolViolation as error:
            log.warning("status of %s: %s", message.sender_uid, error)
            return
        # A time in the future would count for ever, and hide what the worker reports after a restart.
        said = replace(said, at=min(said.at, self._clock()))
        before = self._last.get(message.sender_uid)
        if before is None or said.at >= before.at:
            self._last[message.sender_uid] = said
            if said.state in ONLINE:
                self._ran[message.sender_uid] = said.at
            if before is None or _differs(said, before):
                self._changed()

    def of(self, uid: str) -> Presence | None:
        """The last status message of worker `uid`, however old; None if there was none."""
        return self._last.get(uid)

    def ran_at(self, uid: str) -> float:
        """When worker `uid` last reported that its agent runs, seconds since the epoch; 0 for never."""
        return self._ran.get(uid, 0.0)

    def forget(self, uid: str) -> None:
        """Drop the messages of a retired worker."""
        self._last.pop(uid, None)
        self._ran.pop(uid, None)


def _differs(said: Presence, before: Presence) -> bool:
    return (said.state, said.started_at, said.trouble, said.until) != (
        before.state,
        before.started_at,
        before.trouble,
        before.until,
    )
