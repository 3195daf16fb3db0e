"""Agent Cards over HTTP, with what caches need (A2A 1.0, section 8.6), those of A2A 0.3, and those of both versions."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from email.utils import formatdate, parsedate_to_datetime
from typing import Any

from postroom_a2a.ecma_json import dumps
from postroom_a2a.http.errors import V03, V10
from postroom_a2a.http.exchange import JSON, VERSION, Exchange

Card = dict[str, Any]

PROTOCOL = "0.3.0"
"""The version as a card of 0.3 states it."""

_SCHEMES = {
    "apiKeySecurityScheme": "apiKey",
    "httpAuthSecurityScheme": "http",
    "oauth2SecurityScheme": "oauth2",
    "openIdConnectSecurityScheme": "openIdConnect",
    "mtlsSecurityScheme": "mutualTLS",
}


def with_legacy(card: Card) -> Card:
    """A card of A2A 1.0 with the fields of 0.3 beside its own, if an interface of it is of 0.3.

    A signature does not cover them: it is over the card of 1.0 alone, as `card_up` and the official SDK read it.
    """
    legacy = [
        each for each in card["supportedInterfaces"] if each["protocolVersion"].startswith(V03)
    ]
    if not legacy:
        return card
    first, *others = legacy
    found: Card = {
        **card,
        "protocolVersion": PROTOCOL,
        "url": first["url"],
        "preferredTransport": first["protocolBinding"],
        "additionalInterfaces": [
            {"url": each["url"], "transport": each["protocolBinding"]} for each in others
        ],
    }
    if card.get("capabilities", {}).get("extendedAgentCard"):
        found["supportsAuthenticatedExtendedCard"] = True
    if schemes := card.get("securitySchemes"):
        found["securitySchemes"] = {name: _both_schemes(said) for name, said in schemes.items()}
    if requirements := card.get("securityRequirements"):
        found["security"] = [
            {name: said.get("list", []) for name, said in each["schemes"].items()}
            for each in requirements
        ]
    return found


def _both_schemes(scheme: Card) -> Card:
    ((kind, said),) = scheme.items()
    legacy = {"type": _SCHEMES[kind], **said}
    if "location" in legacy:
        legacy["in"] = legacy.pop("location")
    return {**scheme, **legacy}


# ── reading ──────────────────────────────────────────────────────────────────────────────────────────

_KINDS = {kind: name for name, kind in _SCHEMES.items()}

_LEGACY = frozenset(
    {
        "url",
        "preferredTransport",
        "protocolVersion",
        "additionalInterfaces",
        "supportsAuthenticatedExtendedCard",
        "security",
    }
)
"""Fields of a card of 0.3 that 1.0 does not have."""


def card_up(card: Any) -> Card:
    """The card of 1.0 in a card of 0.3, or in one of both; what is malformed is left out.

    A security scheme of an unknown type is left out, too.
    """
    said = card if isinstance(card, dict) else {}
    found = {name: value for name, value in said.items() if name not in _LEGACY}
    if "supportedInterfaces" not in said and said.get("url"):
        version = said.get("protocolVersion") or PROTOCOL
        more = [
            _interface(each.get("url"), each.get("transport"), version)
            for each in _listed(said.get("additionalInterfaces"))
            if isinstance(each, dict)
        ]
        first = _interface(said["url"], said.get("preferredTransport"), version)
        found["supportedInterfaces"] = [first, *(each for each in more if each != first)]
    if said.get("supportsAuthenticatedExtendedCard"):
        capabilities = said.get("capabilities")
        kept = capabilities if isinstance(capabilities, dict) else {}
        found["capabilities"] = {"extendedAgentCard": True, **kept}
    if isinstance(schemes := said.get("securitySchemes"), dict):
        known = {name: _scheme_up(scheme) for name, scheme in schemes.items()}
        found["securitySchemes"] = {name: scheme for name, scheme in known.items() if scheme}
    if "securityRequirements" not in said and isinstance(said.get("security"), list):
        found["securityRequirements"] = [
            {"schemes": {name: {"list": scopes} for name, scopes in each.items()}}
            for each in said["security"]
            if isinstance(each, dict)
        ]
    return found


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _interface(url: Any, transport: Any, version: Any) -> Card:
    return {"url": url, "protocolBinding": transport or "JSONRPC", "protocolVersion": version}


def _scheme_up(scheme: Any) -> Card:
    if not isinstance(scheme, dict):
        return {}
    for name in _SCHEMES:
        if name in scheme:
            return {name: scheme[name]}
    kind = _KINDS.get(str(scheme.get("type", "")))
    if kind is None:
        return {}
    said = {name: value for name, value in scheme.items() if name != "type"}
    if "in" in said:
        said["location"] = said.pop("in")
    return {kind: said}


# ── over HTTP ─────────────────────────────────────────────────────────────────────────────────────


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
