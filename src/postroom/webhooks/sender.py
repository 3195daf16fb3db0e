"""One signed HTTP POST to a URL that somebody named, through the guard of what leaves this machine (`http.outbound`).

The name is resolved once, each of its addresses is checked, and the connection goes to a checked one. TLS is verified.
A redirect is an answer like any other: following it would be a request to a URL that nobody has checked. `Schedule`
says when a request is tried again, and when it is given up; the database keeps what follows.
"""

from __future__ import annotations

import asyncio
import random
import re
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from postroom import __version__
from postroom.errors import AddressRefused, InvalidInput, PostroomError, RequestTimeout
from postroom.http.client import HttpAnswer, HttpClient
from postroom.http.outbound import OutboundPolicy, check_address, check_name, connect
from postroom.observe import get_logger
from postroom.protocol.hosts import authority, canonical_host, is_address
from postroom.protocol.origins import PORTS

log = get_logger(__name__)

DEADLINE = 15.0
"""Seconds of one attempt, from resolving the name to the head of the answer."""

MAX_ANSWER = 16 * 1024
"""Bytes of an answer that are read, so that its sender sees no broken connection; nobody looks at them."""

NOT_OPEN = "its host is not at an address of the public internet"
"""What the owner of a URL is told; the address itself is the operator's to know."""

_PLAIN = re.compile(r"[!-~]+")

Headers = Sequence[tuple[str, str]]

PAUSES = (5.0, 25.0, 90.0)
"""Seconds from each of the first failed attempts to the next; what follows is a setting (`webhooks.retry`)."""

JITTER = 0.2
"""The part by which a pause may be longer, so that those whom one outage has cut off come back spread."""

LONGEST_REST = 3600.0
"""Seconds that a receiver may ask to be left alone."""

GONE = 410
"""The status by which a receiver says that it wants nothing more."""

NOT_NOW = frozenset({408, 429})
"""The statuses of 400 to 499 that speak of the moment. Any other is of what was sent: what comes after it goes on."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one attempt.

    Attributes:
        status: HTTP status of the answer, 0 for none.
        reason: why it failed, "" if it did not.
        wait: seconds that the receiver asks to be left alone (`Retry-After`).
    """

    status: int
    reason: str = ""
    wait: float = 0.0

    @property
    def delivered(self) -> bool:
        """Whether the receiver has taken it."""
        return not self.reason


@dataclass(frozen=True, slots=True)
class Target:
    """Where a URL leads: `host` in its canonical spelling, and the path with its query."""

    secure: bool
    host: str
    port: int
    path: str

    @classmethod
    def parse(cls, url: str) -> Target:
        """The target of a URL of http or https.

        Raises:
            InvalidInput: it is none, or its host could be read in two ways.
        """
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise InvalidInput("this is not a URL") from error
        if parts.scheme not in PORTS or not parts.hostname or _PLAIN.fullmatch(url) is None:
            raise InvalidInput("this is not a URL of http or https")
        if "@" in parts.netloc:
            raise InvalidInput("a URL with a name and a password in it shows them to many")
        host = canonical_host(parts.hostname)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        return cls(parts.scheme == "https", host, port or PORTS[parts.scheme], path)


class Sender:
    """Sends requests to the outside.

    Args:
        policy: the private places that the operator has opened, and the lookup of names.
        tls: returns the context that verifies receivers.
        deadline: seconds of one attempt.
    """

    def __init__(
        self,
        policy: OutboundPolicy,
        tls: Callable[[], ssl.SSLContext],
        *,
        deadline: float = DEADLINE,
    ) -> None:
        self._policy = policy
        self._tls = tls
        self._deadline = deadline

    def check(self, url: str) -> None:
        """Refuse a URL that no request will ever go to. No name is looked up here: that would tell what it means.

        Raises:
            InvalidInput: it is malformed, at a private address, or of http where the operator has not opened the place.
        """
        target = Target.parse(url)
        try:
            if is_address(target.host):
                check_address(target.host, target.host, target.port, self._policy)
            else:
                check_name(target.host, target.port, self._policy)
        except AddressRefused as error:
            raise InvalidInput(NOT_OPEN) from error
        if not target.secure and not self._opened(target):
            raise InvalidInput(
                "a URL of http would show what is sent to everybody on the way", remedy="https://"
            )

    def _opened(self, target: Target) -> bool:
        """Whether the operator has opened exactly this place, so that http may do."""
        if is_address(target.host):
            # A public address passes the guard, too, and no place of the operator's names it.
            closed = OutboundPolicy()
            try:
                check_address(target.host, target.host, target.port, closed)
            except AddressRefused:
                return True
            return False
        return any(
            place.host == target.host and place.port == target.port
            for place in self._policy.private
        )

    async def post(self, url: str, headers: Headers, body: bytes) -> Outcome:
        """Send `body`; returns what came of it, also where nothing did."""
        try:
            target = Target.parse(url)
            self.check(url)
            async with asyncio.timeout(self._deadline):
                return await self._post(target, headers, body)
        except AddressRefused as error:
            log.warning("a push was refused: %s", error)
            return Outcome(0, NOT_OPEN)
        except (TimeoutError, RequestTimeout):
            return Outcome(0, f"no answer within {self._deadline:g} s")
        except PostroomError as error:
            return Outcome(0, error.message)

    async def _post(self, target: Target, headers: Headers, body: bytes) -> Outcome:
        client = HttpClient(
            target.host,
            lambda: connect(
                target.host,
                target.port,
                policy=self._policy,
                tls=self._tls() if target.secure else None,
                timeout=self._deadline,
            ),
            {
                "host": authority(target.host, target.port, 443 if target.secure else 80),
                "user-agent": f"postroom/{__version__}",
            },
            step=None,
            answer=None,
        )
        async with await client.ask("POST", target.path, headers=headers, body=body) as answer:
            await _drained(answer)
            return _outcome(answer)


def _outcome(answer: HttpAnswer) -> Outcome:
    if 200 <= answer.status < 300:
        return Outcome(answer.status)
    if 300 <= answer.status < 400:
        return Outcome(answer.status, f"it redirects ({answer.status}), which is not followed")
    after = dict(answer.headers).get("retry-after", "")
    wait = float(after) if after.isdecimal() and len(after) < 7 else 0.0
    return Outcome(answer.status, f"it answered {answer.status}", wait)


async def _drained(answer: HttpAnswer) -> None:
    """Read the beginning of a body: the status is known, so nothing that happens here matters."""
    taken = 0
    try:
        async with asyncio.timeout(1.0):
            async for piece in answer.pieces():
                taken += len(piece)
                if taken > MAX_ANSWER:
                    return
    except (PostroomError, TimeoutError):
        return


@dataclass(frozen=True, slots=True)
class Next:
    """What follows a failed attempt.

    Attributes:
        at: instant of the next attempt; None when there is none.
        all: whether everything that waits for this receiver is given up.
    """

    at: float | None
    all: bool = False


class Schedule:
    """The pauses.

    Args:
        uniform: the source of the jitter.
    """

    def __init__(
        self,
        pauses: tuple[float, ...] = PAUSES,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._pauses = pauses
        self._uniform = uniform

    def after(self, outcome: Outcome, attempts: int, now: float) -> Next:
        """What follows a failed attempt at `now`, the `attempts`th.

        A receiver that is away for the whole schedule gets nothing of what waits: it would be tried as long for each.
        """
        if outcome.status == GONE:
            return Next(None, all=True)
        if 400 <= outcome.status < 500 and outcome.status not in NOT_NOW:
            return Next(None)
        if attempts > len(self._pauses):
            return Next(None, all=True)
        pause = self._pauses[attempts - 1]
        pause += self._uniform(0.0, JITTER * pause)
        return Next(now + max(pause, min(outcome.wait, LONGEST_REST)))
