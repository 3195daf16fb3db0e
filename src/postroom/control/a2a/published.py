"""The cards of agents as A2A clients find them over HTTP: with this address and the keys that it takes, signed."""

from __future__ import annotations

import ipaddress
import time
from dataclasses import dataclass, field
from typing import Any

from postroom.control.parts import Parts
from postroom.directory.cards import SENDER_TOKEN, Card
from postroom.errors import NotFound
from postroom.store.agents import Agent
from postroom_a2a.http import Exchange, ServedCard

WAITING = "urn:postroom:a2a:waiting:1"
"""Extension: a task for an agent that is offline is accepted, and waits in the agent's inbox."""

RESUMING = "urn:postroom:a2a:resuming:1"
"""Extension: the events of a stream have ids, and a stream goes on behind the one in `Last-Event-ID`."""

EXTENSIONS: tuple[dict[str, Any], ...] = (
    {
        "uri": WAITING,
        "description": "A task is accepted while this agent is offline, and waits in its inbox until it is back.",
    },
    {
        "uri": RESUMING,
        "description": "Events of a stream have ids; with Last-Event-ID a stream goes on behind that event.",
    },
)

SCHEMES: dict[str, Any] = {
    "bearer": {
        "httpAuthSecurityScheme": {
            "description": "An API key of this post room.",
            "scheme": "Bearer",
        }
    },
    "key": {
        "apiKeySecurityScheme": {
            "description": "An API key of this post room.",
            "location": "header",
            "name": "X-API-Key",
        }
    },
}
REQUIREMENTS: list[dict[str, Any]] = [{"schemes": {name: {}}} for name in SCHEMES]

BINDINGS = (("JSONRPC", "1.0"), ("HTTP+JSON", "1.0"), ("JSONRPC", "0.3"), ("HTTP+JSON", "0.3"))

ONE_ORIGIN = "postroom.a2a.one_origin"
"""Scope key: the card is to name no interface of another origin, which some clients (Google ADK) refuse a card for."""

MAX_KEPT = 1024
"""Cards that are kept, so that none is signed for each request."""


@dataclass(slots=True)
class _Kept:
    source: Card = field(repr=False)
    served: ServedCard


class PublishedCards:
    """Makes the cards."""

    def __init__(self, parts: Parts) -> None:
        self._search = parts.search
        self._workers = parts.workers
        self._outside = parts.outside
        self._signed = parts.registry.signed
        self._public_urls = parts.settings.public_urls
        self._org = parts.owner.org
        self._grpc = parts.installation.grpc
        self._kept: dict[tuple[str, str, bool], _Kept] = {}

    async def public(self, exchange: Exchange, agent: Agent, *, known: bool) -> ServedCard:
        """The card for everybody.

        Args:
            known: the caller has a key; others see only cards that are declared public.
        """
        source = await self._source(agent)
        public = await self._is_public(agent)
        if not (known or public):
            raise NotFound(f"@{agent.nick} has no public card")
        return self._served(exchange, agent, source, public=public)

    async def _is_public(self, agent: Agent) -> bool:
        if agent.kind == "worker":
            return await self._workers.is_public(agent.uid)
        return self._outside.is_public(agent.uid)

    async def extended(self, exchange: Exchange, agent: Agent) -> ServedCard:
        """The card for callers with a key."""
        return self._served(exchange, agent, await self._source(agent), public=False)

    async def _source(self, agent: Agent) -> Card:
        card = await self._search.card(agent)
        if card is None:
            raise NotFound(f"@{agent.nick} has no card")
        return card

    def _served(
        self, exchange: Exchange, agent: Agent, source: Card, *, public: bool
    ) -> ServedCard:
        url = self._address(exchange, agent.uid)
        near = _is_near(exchange.scope)
        alone = ONE_ORIGIN in exchange.scope
        grpc = [] if alone else self._grpc.interfaces(self._org, agent.uid, near=near)
        place = (agent.uid, url + "".join(each["url"] for each in grpc), public)
        kept = self._kept.get(place)
        if kept is None or kept.source != source:
            card = self._signed(_published(source, url, grpc))
            if len(self._kept) >= MAX_KEPT:
                self._kept.clear()
            kept = self._kept[place] = _Kept(source, ServedCard(card, time.time(), public=public))
        return kept.served

    def _address(self, exchange: Exchange, uid: str) -> str:
        """The URL at which this caller reaches an agent: under the name that it used, unless a proxy has changed it."""
        scope = exchange.scope
        base = f"{scope['scheme']}://{exchange.header('host')}"
        if self._public_urls and not _is_near(scope):
            base = self._public_urls[0].rstrip("/")
        return f"{base}{scope['root_path']}/a2a/{uid}"


def _is_near(scope: Any) -> bool:
    try:
        return ipaddress.ip_address((scope["client"] or ("127.0.0.1",))[0]).is_loopback
    except ValueError:
        return False


def _published(source: Card, url: str, grpc: list[dict[str, str]]) -> Card:
    """The card of an agent as this server gives it."""
    said = source.get("capabilities", {})
    kept = [each for each in said.get("extensions", ()) if each.get("uri") != SENDER_TOKEN]
    capabilities = {
        "streaming": True,
        "pushNotifications": True,
        "extensions": [*kept, *EXTENSIONS],
        "extendedAgentCard": True,
    }
    interfaces = [
        {"url": url, "protocolBinding": binding, "protocolVersion": version}
        for binding, version in BINDINGS
    ]
    return {
        **source,
        "supportedInterfaces": [*interfaces, *grpc],
        "capabilities": capabilities,
        "securitySchemes": SCHEMES,
        "securityRequirements": REQUIREMENTS,
    }
