"""Agent Cards of servers: where they lie, and which of a card's interfaces this client speaks. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from postroom_a2a.errors import InvalidInput, ProtocolViolation
from postroom_a2a.text import one_line

Card = dict[str, Any]
"""An AgentCard as JSON, of 1.0 or 0.3."""

WELL_KNOWN = ("/.well-known/agent-card.json", "/.well-known/agent.json")
"""Paths of a card: of A2A 0.3 and later, and of the versions before."""

JSONRPC, REST = "JSONRPC", "HTTP+JSON"

SPOKEN = (("1.0", JSONRPC), ("1.0", REST), ("0.3", JSONRPC))
"""Versions and bindings that this client speaks."""


@dataclass(frozen=True, slots=True)
class Interface:
    """Where and how an agent is called.

    Attributes:
        url: of http or https.
        version: "1.0" or "0.3".
        tenant: each call repeats it; "" for none.
    """

    url: str
    binding: str = JSONRPC
    version: str = "1.0"
    tenant: str = ""


def check_url(url: str) -> str:
    """The URL, if a client may call it.

    Raises:
        InvalidInput: not http or https, without a host, or with a name and password in it.
    """
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise InvalidInput(f"{one_line(url, 200)!r} is no URL") from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidInput(
            f"{one_line(url, 200)!r} is no address of http or https",
            remedy="such as https://agents.example/translator",
        )
    if parts.username is not None or parts.password is not None:
        raise InvalidInput("the address has a password in it", remedy="give it as a credential")
    if not url.isascii() or any(c <= " " for c in url):
        raise InvalidInput(f"{one_line(url, 200)!r} has characters that no URL has")
    return urlunsplit(parts._replace(fragment=""))


def places(url: str) -> Iterator[tuple[str, bool]]:
    """Where the card of the agent at `url` may lie, and whether that place is of this agent alone.

    A card at the root of a server may be another agent's: it counts only if it names `url` (`names`).
    """
    parts = urlsplit(check_url(url))
    if parts.path.endswith(".json"):
        yield url, True
        return
    path = parts.path.rstrip("/")
    for known in WELL_KNOWN:
        yield urlunsplit(parts._replace(path=path + known, query="")), True
    if path:
        for known in WELL_KNOWN:
            yield urlunsplit(parts._replace(path=known, query="")), False


def names(card: Card, url: str) -> bool:
    """Whether one of the card's interfaces is at `url` or below it."""
    wanted = url.rstrip("/")
    return any(
        found == wanted or found.startswith(f"{wanted}/")
        for each in _listed(card)
        for found in (each.url.rstrip("/"),)
    )


def choose(card: Card) -> Interface:
    """The interface to call: 1.0 before 0.3, then in the order of the card.

    Raises:
        ProtocolViolation: the card has none that this client speaks.
    """
    found = [each for each in _listed(card) if (each.version, each.binding) in SPOKEN]
    for version in ("1.0", "0.3"):
        for each in found:
            if each.version == version:
                return each
    offered = ", ".join(f"{each.binding} {each.version}" for each in _listed(card)) or "none"
    raise ProtocolViolation(
        f"the card has no interface that is spoken here; it offers: {one_line(offered, 200)}",
        remedy="spoken are JSONRPC and HTTP+JSON of A2A 1.0, and JSONRPC of 0.3",
    )


def _listed(card: Card) -> list[Interface]:
    """The interfaces of a card of either version, without those that are malformed."""
    found = [_interface(each) for each in _objects(card.get("supportedInterfaces"))]
    if not found and isinstance(card.get("url"), str):
        version = _version(card.get("protocolVersion") or "0.3.0")
        first = {"url": card["url"], "transport": card.get("preferredTransport") or JSONRPC}
        found = [
            Interface(str(each.get("url")), str(each.get("transport")), version)
            for each in (first, *_objects(card.get("additionalInterfaces")))
        ]
    return [each for each in found if _callable(each.url)]


def _interface(each: Mapping[str, Any]) -> Interface:
    tenant = each.get("tenant")
    return Interface(
        str(each.get("url", "")),
        str(each.get("protocolBinding", "")),
        _version(each.get("protocolVersion") or "1.0"),
        tenant if isinstance(tenant, str) else "",
    )


def _version(said: object) -> str:
    return ".".join(str(said).split(".")[:2])


def _objects(value: object) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _callable(url: str) -> bool:
    try:
        check_url(url)
    except InvalidInput:
        return False
    return True
