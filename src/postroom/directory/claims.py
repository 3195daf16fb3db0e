"""Codes in the place of keys, for agents whose words many others read: who owns the agent claims the key with one.

A code opens nothing. It counts once, for some minutes, and for one person. Codes are kept in memory: those of a post
room that starts again are worth nothing, and are asked for again.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

from postroom.errors import NotFound
from postroom.identity.tokens import digest

LIFE = 300.0
"""Seconds that a code counts."""

MOST = 1000
"""Codes that are kept: of further ones the oldest is forgotten."""

_LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"
"""Without those that look like others."""


def new_code() -> str:
    """A code for people: four groups of five letters and digits, which nobody can guess."""
    return "-".join("".join(secrets.choice(_LETTERS) for _ in range(5)) for _ in range(4))


def code_digest(code: str) -> str:
    """The stored form of a code, however its letters were typed."""
    return digest(code.strip().lower())


@dataclass(frozen=True, slots=True)
class Offer:
    """What a code is for.

    Attributes:
        uid, key_id: of the agent that has asked, and its key.
        nick: of a new agent; "" for another key of the one that has asked.
        expires: in seconds since the epoch.
    """

    uid: str
    key_id: str
    nick: str
    expires: float


class Claims:
    """The codes of an organisation, by their digests; of each agent its last one counts."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._offers: dict[str, Offer] = {}

    def offer(self, uid: str, key_id: str, nick: str = "") -> tuple[str, Offer]:
        """A new code, and what it is for."""
        now = self._clock()
        kept = {
            sha256: offer
            for sha256, offer in self._offers.items()
            if offer.expires > now and offer.uid != uid
        }
        while len(kept) >= MOST:
            del kept[next(iter(kept))]
        code = new_code()
        made = Offer(uid, key_id, nick, now + LIFE)
        self._offers = {**kept, code_digest(code): made}
        return code, made

    def take(self, code: str, allowed: Callable[[Offer], bool]) -> Offer:
        """Use up a code.

        Args:
            allowed: whether the caller may; for others there is no such code, and it counts on.

        Raises:
            NotFound: it is unknown, used, too old, or not for the caller.
        """
        sha256 = code_digest(code)
        offer = self._offers.get(sha256)
        if offer is None or offer.expires <= self._clock() or not allowed(offer):
            raise NotFound(
                "that code is used, too old, or not for you",
                remedy="have the agent ask for another one; it counts for five minutes",
            )
        del self._offers[sha256]
        return offer

    def give_back(self, code: str, offer: Offer) -> None:
        """Have a code count again whose use has failed."""
        self._offers[code_digest(code)] = offer
