"""How much one caller may ask: requests of a key and their bodies, requests without a valid key, streams of a key.

A request is refused before its body is read. A body that is more than a few lines counts as more requests, and bodies
of one key that come faster than they are worked off wait for one another, so that others find their turn between
them. A key that was good is known here by its digest; that knowledge decides only which limit a request counts for,
it admits nobody.

An address has few tries for each agent whose key it claims to have. When they are spent, a key in the right form is
looked up nevertheless, by its digest, since it may be the right one: others' wrong ones must not keep it out. A wrong
one is then refused, and late (`PAUSE`), so that guessing is slow, and so is a program that repeats a dead key for ever.
Workers come through doors, which have limits of their own (`gateway.limits`). The operator's key has none here: who
owns the post room must not be locked out.
"""

from __future__ import annotations

import ipaddress
import math
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from postroom.errors import InvalidInput, Refused, TooManyRequests
from postroom.identity.tokens import api_key_uid, digest
from postroom.protocol.limits import MAX_API_KEYS
from postroom.protocol.principal import OPERATOR_KEY, Principal
from postroom.protocol.rates import Rate, Rates
from postroom.settings import Settings

MAX_CALLERS = 4096
"""Keys, and places of guesses, whose rates are kept: of further ones the one that was idle longest is forgotten."""

MINUTE = 60.0

OPEN_STREAMS = 10
"""Streams that a key of open registration may have open."""

PIECE = 16 * 1024
"""Bytes of a body that count as one request more."""

MARKS = 1000
"""Commas and brackets in a body that count as one request more: each value of JSON costs far more than its bytes."""

PATIENCE = 10.0
"""Seconds that a body waits for earlier ones of its key; then it is refused."""

STREAMS = 0.1
"""Of a key's streams, those that it may open at once, but ten at least; a tenth of these a second."""

PAUSE = 1.0
"""Seconds at most by which the refusal of a wrong key is late, once its address has spent its tries."""

MAKING = 0.1
"""API keys that one agent may make or replace a second; `MAX_API_KEYS` at once before that."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits of one caller; 0 for none.

    Attributes:
        requests: of one key, a second.
        burst: of one key, at once.
        strangers: requests a minute of one address without a valid key.
        open: requests a minute of one key that came by open registration.
        streams: open streams of one key.
    """

    requests: float = 0.0
    burst: float = 0.0
    strangers: float = 0.0
    streams: int = 0
    open: float = 0.0

    @classmethod
    def of(cls, settings: Settings) -> Bounds:
        """As the operator has set them."""
        return cls(
            settings.limit_requests,
            settings.limit_burst,
            settings.limit_strangers,
            settings.limit_streams,
            settings.limit_open,
        )


@dataclass(frozen=True, slots=True)
class Comer:
    """What is known of a request before its key is looked up.

    Attributes:
        sha256: digest of its key, "" without one.
        claims: uid of the agent whose key it claims to be, "" if it is not in the form of a key.
    """

    address: str
    sha256: str = ""
    claims: str = ""

    @classmethod
    def of(cls, address: str, key: str) -> Comer:
        """Who comes with that API key."""
        try:
            claims = api_key_uid(key)
        except InvalidInput:
            claims = ""
        return cls(address, digest(key), claims)


class CallerLimits:
    """The limits of all callers of the API, of all organisations."""

    def __init__(
        self, bounds: Bounds | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._bounds = bounds = bounds or Bounds()
        self._clock = clock
        self._keys: Rates[str] = Rates(bounds.requests, bounds.burst, MAX_CALLERS)
        self._strangers: Rates[tuple[str, str]] = Rates(
            bounds.strangers / MINUTE, bounds.strangers, MAX_CALLERS
        )
        self._open: Rates[str] = Rates(bounds.open / MINUTE, bounds.open, MAX_CALLERS)
        # A quarter of the rate: a body that is counted as one request costs more than a request.
        self._bodies: Rates[str] = Rates(bounds.requests / 4, 0.0, MAX_CALLERS)
        opened = max(10.0, bounds.streams * STREAMS)
        self._opened: Rates[str] = Rates(opened * STREAMS, opened, MAX_CALLERS)
        self._makers: Rates[str] = Rates(MAKING, MAX_API_KEYS, MAX_CALLERS)
        self._known: dict[str, tuple[str, bool]] = {}
        self._streams: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()

    # ── rates ───────────────────────────────────────────────────────────────────────────────────────────

    def begin(self, comer: Comer) -> None:
        """A request came; whether its key is valid is not known yet.

        Raises:
            TooManyRequests: the key has come too often; or there is none that could be valid, and the address has
                tried too often.
        """
        known = self._known.pop(comer.sha256, None)
        if known is not None:
            self._known[comer.sha256] = known  # the last to be forgotten now
            self._count(*known)
        elif not comer.claims and self._bounds.strangers:
            now = self._clock()
            if wait := self._stranger(comer, now).wait(1.0, now):
                self._refuse_stranger(wait)

    def knows(self, comer: Comer) -> bool:
        """Whether its key was valid when it was looked up last."""
        return comer.sha256 in self._known

    def known(self, comer: Comer, principal: Principal) -> None:
        """The key is valid, and whose it is.

        Raises:
            TooManyRequests: the key has come too often.
        """
        if comer.sha256 in self._known:
            return  # it was counted when it came
        known = self._known[comer.sha256] = principal.key_id, principal.stranger
        if len(self._known) > MAX_CALLERS:
            del self._known[next(iter(self._known))]
        self._count(*known)

    def failed(self, comer: Comer) -> None:
        """The request had no key, or one that is not valid.

        Raises:
            TooManyRequests: the address had spent its tries before.
        """
        self._known.pop(comer.sha256, None)
        now = self._clock()
        rate = self._stranger(comer, now)
        if not rate.covers(1.0, now):
            self._refuse_stranger(rate.wait(1.0, now))

    def making(self, me: Principal) -> None:
        """An API key is to be made or replaced by `me`.

        Raises:
            TooManyRequests: `me` has done so too often.
        """
        now = self._clock()
        rate = self._makers.of(me.uid, now)
        if me.key_id != OPERATOR_KEY and not rate.covers(1.0, now):
            wait = rate.wait(1.0, now)
            self._refuse("keys", "too many API keys were made", "use those that there are", wait)

    def _stranger(self, comer: Comer, now: float) -> Rate:
        return self._strangers.of((_place(comer.address), comer.claims), now)

    def _refuse_stranger(self, wait: float) -> None:
        self._refuse(
            "strangers",
            "too many requests without a valid key came from this address",
            "check the key: postroom login",
            wait,
        )

    def _count(self, key: str, stranger: bool) -> None:
        now = self._clock()
        if stranger:
            self._count_open(key, now)
            return
        if key == OPERATOR_KEY or not self._bounds.requests:
            return
        rate = self._keys.of(key, now)
        if not rate.covers(1.0, now):
            self._refuse(
                "requests",
                f"more than {self._bounds.requests:g} requests a second came with this key",
                "ask more slowly, or wait in one request instead of asking again",
                rate.wait(1.0, now),
            )

    def _count_open(self, key: str, now: float) -> None:
        rate = self._open.of(key, now)
        if not rate.covers(1.0, now):
            self._refuse(
                "open",
                f"more than {self._bounds.open:g} requests a minute came with this key, of open registration",
                "wait in one request (?wait=) instead of asking again, or ask for an invite",
                rate.wait(1.0, now),
            )

    def weigh(self, key: str, size: int, marks: int) -> float:
        """Count the body of a request of a key; seconds to wait before it is worked on.

        Args:
            size: bytes of it.
            marks: commas and brackets in it.

        Raises:
            TooManyRequests: too many earlier ones wait.
        """
        units = float(size // PIECE + marks // MARKS)
        if self._open.has(key):
            self._open.of(key, self._clock()).take(units, self._clock())
            return 0.0
        if not units or not key or key == OPERATOR_KEY or not self._bounds.requests:
            return 0.0
        now = self._clock()
        self._keys.of(key, now).take(units, now)
        bodies = self._bodies.of(key, now)
        wait = bodies.wait(0.0, now)
        if wait > PATIENCE:
            self._refuse(
                "bodies",
                "too many large bodies came with this key",
                "put large content into a file, and send that with --file PATH",
                wait,
            )
        bodies.take(units, now)
        return wait

    # ── streams ─────────────────────────────────────────────────────────────────────────────────────────

    def open_stream(self, key: str) -> None:
        """Count a stream of a key; `close_stream` ends it.

        Raises:
            Refused: the key has as many as it may have, or has opened too many of late.
        """
        most = self._bounds.streams
        if self._open.has(key):
            most = min(most or OPEN_STREAMS, OPEN_STREAMS)
        if most and self._streams[key] >= most and key != OPERATOR_KEY:
            self.note("streams")
            raise Refused(
                f"this key has {most} open streams, the most that one key can have",
                remedy="close one; GET /v1/events has everything in one stream",
            )
        now = self._clock()
        opened = self._opened.of(key, now)
        if most and key != OPERATOR_KEY and not opened.covers(1.0, now):
            self._refuse(
                "streams",
                "too many streams were opened with this key",
                "keep one open instead of opening it again",
                opened.wait(1.0, now),
            )
        self._streams[key] += 1

    def close_stream(self, key: str) -> None:
        """Forget a stream that was counted."""
        self._streams[key] -= 1
        if not self._streams[key]:
            del self._streams[key]

    @property
    def streams(self) -> int:
        """Open streams of all keys."""
        return self._streams.total()

    def note(self, limit: str) -> None:
        """Count a request that was refused for a limit."""
        self.refused[limit] += 1

    def _refuse(self, limit: str, message: str, remedy: str, seconds: float) -> None:
        self.note(limit)
        whole = max(1, math.ceil(seconds))
        raise TooManyRequests(
            message, remedy=f"{remedy}; again in {whole} s", seconds=max(seconds, 1.0)
        )


@lru_cache(maxsize=1024)
def _place(address: str) -> str:
    """What counts as one address: of IPv6 its network, since each host there has as many addresses as it likes."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if found.version == 4:
        return address
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((found, 64), strict=False))
