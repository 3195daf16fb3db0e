"""The sidecar's use of the bus besides pulling: records, questions to the control plane, alerts, and its own renewal.

NATS cannot re-authenticate a connection in place, so a second connection with the new credential takes over from the
first without a gap (`MessageBusProvider.renew`).
"""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from postroom.bus.port import Message, Stored
from postroom.errors import (
    BusDisconnected,
    NoResponders,
    PostroomError,
    ProtocolViolation,
    RequestTimeout,
    from_problem,
)
from postroom.observe import get_logger
from postroom.protocol import subjects
from postroom.protocol.alerts import Alert, RaiseAlert
from postroom_a2a import strict_json
from postroom_a2a.retry import RetryPolicy

PUBLISH_DEADLINE = 30.0
"""Seconds of tries to store a record, always under the same id."""

ASK_DEADLINE = 20.0
"""Seconds of tries to ask the control plane: its restart takes a few."""

_log = get_logger(__name__)


def _upper_half(_: float, ceiling: float) -> float:
    return random.uniform(ceiling / 2, ceiling)  # noqa: S311 (spreads retries, protects nothing)


BACKOFF = RetryPolicy(base=0.2, cap=3.0, uniform=_upper_half)
"""Pauses between the sidecar's tries. None is very short, so that failures cost little."""


class BusClient(Protocol):
    """Publish and request of `postroom.bus.port.MessageBusProvider`, on whichever connection is current."""

    async def publish(
        self,
        subject: str,
        payload: bytes,
        *,
        id: str = "",  # noqa: A002 (the port's word)
        metadata: Mapping[str, str] | None = None,
        timeout: float = 5.0,
        confirm: bool = True,
    ) -> Stored | None:
        """As `MessageBusProvider.publish`."""

    async def request(
        self,
        subject: str,
        payload: bytes,
        *,
        metadata: Mapping[str, str] | None = None,
        timeout: float = 5.0,
    ) -> Message:
        """As `MessageBusProvider.request`."""


@dataclass(frozen=True, slots=True)
class Published:
    """A record on disk.

    Attributes:
        stored: its place, None for a subject that no stream stores.
        attempts: how often it was sent; only after the first may a duplicate be our own.
    """

    stored: Stored | None
    attempts: int


async def publish_durably(
    bus: BusClient,
    subject: str,
    payload: bytes,
    *,
    id: str,  # noqa: A002
    deadline: float = PUBLISH_DEADLINE,
) -> Published:
    """Publish until the record is on disk, for `deadline` seconds.

    Raises:
        RequestTimeout, BusDisconnected: the last failure, after `deadline`.
        PostroomError: another refusal of the bus, at once.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + deadline
    attempt = 0
    while True:
        attempt += 1
        try:
            return Published(await bus.publish(subject, payload, id=id), attempt)
        except (NoResponders, RequestTimeout, BusDisconnected):
            # NoResponders: for a moment after the server's restart no stream answers.
            pause = BACKOFF.delay(attempt)
            if loop.time() + pause >= end:
                raise
            await asyncio.sleep(pause)


def alert_raiser(bus: BusClient, own: str) -> RaiseAlert:
    """A function that raises alerts of one worker and logs each, so that none is lost with the bus."""
    subject = subjects.alerts(own)

    async def raise_alert(alert: Alert) -> None:
        _log.error("alert %s: %s", alert.kind, alert.text)
        try:
            await publish_durably(bus, subject, alert.encode(), id=secrets.token_hex(16))
        except PostroomError as error:  # the worker goes on without the bus
            _log.error("the alert could not be stored: %s", error)

    return raise_alert


async def ask_control(
    bus: BusClient,
    own: str,
    verb: str,
    question: Mapping[str, Any],
    *,
    timeout: float = 5.0,
    deadline: float = ASK_DEADLINE,
) -> dict[str, Any]:
    """Ask the control plane; `verb` like `agents.resolve`.

    Args:
        timeout: seconds for one answer.
        deadline: seconds for all tries, while the control plane is away.

    Raises:
        PostroomError: the error that the control plane answered, or the reason why it did not answer.
    """
    subject = subjects.ctl(own, *verb.split("."))
    payload = strict_json.dumps(question)
    end = asyncio.get_running_loop().time() + deadline
    attempt = 0
    while True:
        attempt += 1
        try:
            return _answer(verb, await bus.request(subject, payload, timeout=timeout))
        except (NoResponders, RequestTimeout, BusDisconnected):
            pause = BACKOFF.delay(attempt)
            if asyncio.get_running_loop().time() + pause >= end:
                raise
            await asyncio.sleep(pause)


def _answer(verb: str, answer: Message) -> dict[str, Any]:
    try:
        record = strict_json.loads(answer.payload)
    except ValueError as error:
        raise ProtocolViolation(f"the control plane's answer to {verb} is not JSON") from error
    if not isinstance(record, dict):
        raise ProtocolViolation(f"the control plane's answer to {verb} is not a JSON object")
    problem = record.get("error")
    if isinstance(problem, dict):
        status = problem.get("status", 500)
        error = from_problem(problem, status if isinstance(status, int) else 500)
        # The remedy names the command of people; an agent has another one.
        error.remedy = error.remedy.replace("postroom agents", "postroom-agent agents")
        raise error
    return record


RENEW_AT = 0.75
"""Share of a credential's remaining lifetime after which it is renewed."""

RETRY = 30.0
"""Seconds between attempts; fewer when little time is left."""

SHORTEST = 1.0

SPREAD = 0.5
"""Seconds over which workers spread a renewal that the control plane asks of all of them."""

LONGEST_MOVE = 10.0
"""Seconds for a new connection to take over."""

MARGIN = 0.2
"""Seconds between the end of the former connection and the expiry of its credential."""


class CredentialRenewal:
    """Keeps one worker's credential valid.

    Args:
        expires_at: epoch seconds, 0 for never.
        accept: puts a new JWT into use within so many seconds; raises PostroomError if the bus refuses it.
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
        """Renew soon, as the control plane wants: within `SPREAD` seconds."""
        self._asked.set()

    async def run(self) -> None:
        """Renew, in time and when asked, until cancelled."""
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
            PostroomError: the old credential stays in use.
        """
        answer = await ask_control(self._bus, self._own, "credential.renew", {})
        jwt = answer.get("jwt")
        if not isinstance(jwt, str) or not jwt:
            raise ProtocolViolation("the control plane's answer to credential.renew has no JWT")
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
            raise ProtocolViolation("the expiry of the new credential is not a time") from error
    return float(value) if isinstance(value, (int, float)) else 0.0
