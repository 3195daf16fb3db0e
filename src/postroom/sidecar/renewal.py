"""Renews the worker's bus credential before it runs out.

NATS cannot re-authenticate a connection in place, so a second connection is made with the new one and takes over
from the first without a gap (`MessageBusProvider.renew`).
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from datetime import datetime

from postroom.errors import PostroomError, ProtocolViolation
from postroom.observe import get_logger
from postroom.sidecar.bus import BusClient, ask_control

RENEW_AT = 0.75
"""Share of what is left of its lifetime after which a credential is renewed."""

RETRY = 30.0
"""Seconds at most between attempts; fewer when little time is left."""

SHORTEST = 1.0

SPREAD = 0.5
"""Seconds over which workers that are asked at once renew."""

LONGEST_MOVE = 10.0
"""Seconds that a new connection may take to take over."""

MARGIN = 0.2
"""Seconds before its expiry at which the former connection has ended."""

_log = get_logger(__name__)


class CredentialRenewal:
    """Keeps one worker's credential valid.

    Args:
        wire: to ask the control plane.
        expires_at: epoch seconds, 0 for never.
        accept: takes the new JWT into use within so many seconds, after which the former one runs out; raises
            PostroomError if the bus does not take it.
    """

    def __init__(
        self,
        bus: BusClient,
        own: str,
        *,
        expires_at: float,
        accept: Callable[[str, float], Awaitable[None]],
        now: Callable[[], float] = time.time,
    ) -> None:
        self._bus = bus
        self._own = own
        self._expires_at = expires_at
        self._accept = accept
        self._now = now
        self._asked = asyncio.Event()

    def ask(self) -> None:
        """Renew soon: the control plane wants it, as for a new key. Not all workers at the same moment."""
        self._asked.set()

    async def run(self) -> None:
        """Renew for ever: when time is running out, and when asked."""
        while True:
            await self._due()
            while True:
                try:
                    await self.renew()
                    break
                except PostroomError as error:
                    _log.warning("the credential could not be renewed: %s", error)
                await asyncio.sleep(min(RETRY, self._pause(0.5)))

    async def _due(self) -> None:
        try:
            async with asyncio.timeout(self._pause(RENEW_AT) if self._expires_at else None):
                await self._asked.wait()
                await asyncio.sleep(random.uniform(0, SPREAD))  # noqa: S311 (jitter)
        except TimeoutError:
            pass
        self._asked.clear()

    async def renew(self) -> None:
        """Renew now.

        Raises:
            PostroomError: it did not succeed; the old credential stays in use.
        """
        answer = await ask_control(self._bus, self._own, "credential.renew", {})
        jwt = answer.get("jwt")
        if not isinstance(jwt, str) or not jwt:
            raise ProtocolViolation("the control plane's answer holds no credential")
        expires_at = _instant(answer.get("expires_at"))
        await self._accept(jwt, min(LONGEST_MOVE, max(MARGIN, self._left() - MARGIN)))
        self._expires_at = expires_at

    def _left(self) -> float:
        return self._expires_at - self._now() if self._expires_at else LONGEST_MOVE

    def _pause(self, share: float) -> float:
        return max(SHORTEST, self._left() * share)


def _instant(value: object) -> float:
    """Epoch seconds, given as such or as RFC 3339; 0 for none."""
    if isinstance(value, str):
        try:
            return datetime.fromisoformat(value).timestamp()
        except ValueError as error:
            raise ProtocolViolation("the credential's expiry is no time") from error
    return float(value) if isinstance(value, (int, float)) else 0.0
