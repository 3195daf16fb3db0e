"""Agent Cards over HTTP, with what caches need (A2A 1.0, section 8.6)."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from email.utils import formatdate, parsedate_to_datetime
from typing import Any

from postroom_a2a.ecma_json import dumps
from postroom_a2a.http.exchange import JSON, VERSION, Exchange
from postroom_a2a.http.v03_cards import with_legacy
from postroom_a2a.http.versions import V10

PATHS = ("/.well-known/agent-card.json", "/.well-known/agent.json")
"""The path of a card since A2A 0.3, and before."""

AGE = 60
"""Seconds for which a client may keep a card by default."""


class ServedCard:
    """A card as it goes over HTTP: to a client that states A2A 1.0 as it is, to others with the fields of 0.3.

    Args:
        changed_at: when it became what it is, seconds since the epoch.
        public: caches between may keep it, too.
        age: seconds for which a client may keep it.
    """

    __slots__ = ("age", "both", "card", "changed_at", "plain", "public")

    def __init__(
        self, card: dict[str, Any], changed_at: float, *, public: bool = False, age: int = AGE
    ) -> None:
        self.card = card
        self.changed_at = changed_at
        self.public = public
        self.age = age
        self.plain = _Body(dumps(card))
        self.both = _Body(dumps(with_legacy(card)))


class _Body:
    """JSON of a card, and its tag."""

    __slots__ = ("tag", "text")

    def __init__(self, text: bytes) -> None:
        self.text = text
        self.tag = f'"{hashlib.sha256(text).hexdigest()[:32]}"'


CardOf = Callable[[Exchange], Awaitable[ServedCard]]
"""The public card of the agent that a request is for; raises `NotFound` without one."""


async def answer(exchange: Exchange, card: ServedCard) -> None:
    """Answer a GET or HEAD with a card; 304 for a client that has it already (RFC 9110, section 13)."""
    body = card.plain if exchange.parameters().get(VERSION, "").startswith(V10) else card.both
    kept = b"public" if card.public else b"private"
    headers = (
        (b"etag", body.tag.encode()),
        (b"last-modified", formatdate(card.changed_at, usegmt=True).encode()),
        (b"cache-control", b"%b, max-age=%d" % (kept, card.age)),
        (b"vary", b"A2A-Version, Authorization, Host, X-API-Key"),
    )
    if _is_known(exchange, body.tag, card.changed_at):
        await exchange.begin(304, *headers)
        await exchange.piece(b"", more=False)
        return
    await exchange.answer(200, body.text, JSON, *headers)


def _is_known(exchange: Exchange, tag: str, changed_at: float) -> bool:
    if known := exchange.header("if-none-match"):
        tags = {each.strip().removeprefix("W/") for each in known.split(",")}
        return "*" in tags or tag in tags
    if since := exchange.header("if-modified-since"):
        try:
            return int(changed_at) <= parsedate_to_datetime(since).timestamp()
        except ValueError:
            return False
    return False
