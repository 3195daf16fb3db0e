"""Agent Cards over HTTP, with what caches need (A2A 1.0, section 8.6)."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from email.utils import formatdate, parsedate_to_datetime
from typing import Any

from postroom_a2a.ecma_json import dumps
from postroom_a2a.http.exchange import JSON, Exchange

PATHS = ("/.well-known/agent-card.json", "/.well-known/agent.json")
"""The path of a card since A2A 0.3, and before."""

AGE = 60
"""Seconds for which a client may keep a card by default."""


@dataclass(frozen=True, slots=True)
class ServedCard:
    """A card as it goes over HTTP.

    Attributes:
        changed_at: when it became what it is, seconds since the epoch.
        public: caches between may keep it, too.
        age: seconds for which a client may keep it.
    """

    card: dict[str, Any] = field(hash=False)
    changed_at: float
    public: bool = False
    age: int = AGE
    body: bytes = field(init=False, repr=False)
    tag: str = field(init=False)

    def __post_init__(self) -> None:
        body = dumps(self.card)
        object.__setattr__(self, "body", body)
        object.__setattr__(self, "tag", f'"{hashlib.sha256(body).hexdigest()[:32]}"')


CardOf = Callable[[Exchange], Awaitable[ServedCard]]
"""The public card of the agent that a request is for; raises `NotFound` without one."""


async def answer(exchange: Exchange, card: ServedCard) -> None:
    """Answer a GET or HEAD with a card; 304 for a client that has it already (RFC 9110, section 13)."""
    kept = b"public" if card.public else b"private"
    headers = (
        (b"etag", card.tag.encode()),
        (b"last-modified", formatdate(card.changed_at, usegmt=True).encode()),
        (b"cache-control", b"%b, max-age=%d" % (kept, card.age)),
        (b"vary", b"Authorization, X-API-Key, Host"),
    )
    if _is_known(exchange, card):
        await exchange.begin(304, *headers)
        await exchange.piece(b"", more=False)
        return
    await exchange.answer(200, card.body, JSON, *headers)


def _is_known(exchange: Exchange, card: ServedCard) -> bool:
    if known := exchange.header("if-none-match"):
        tags = {tag.strip().removeprefix("W/") for tag in known.split(",")}
        return "*" in tags or card.tag in tags
    if since := exchange.header("if-modified-since"):
        try:
            return int(card.changed_at) <= parsedate_to_datetime(since).timestamp()
        except ValueError:
            return False
    return False
