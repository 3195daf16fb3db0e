"""Agent Cards: built from a template or from what a person gave, or checked when a worker announces one.

The shape is the AgentCard of A2A 1.0 (specification, section 4.4) as ProtoJSON. No card here has a field with an empty
or default value: verifiers differ on whether such a field is signed (section 8.4.1), and without one all of them
compute the same canonical form.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from postroom.errors import InvalidInput, MessageTooLarge
from postroom.protocol.ids import AGENT_COMMAND, check_name, check_uid
from postroom.protocol.limits import (
    MAX_CARD_BYTES,
    MAX_DEPTH,
    MAX_DESCRIPTION,
    MAX_LABEL,
    MAX_SKILLS,
    MAX_VALUES,
)
from postroom.protocol.template import Template
from postroom_a2a import strict_json
from postroom_a2a.text import one_line, printable

Card = dict[str, Any]
"""An AgentCard as JSON."""

BINDING = "NATS"
PROTOCOL_VERSION = "1.0"

SENDER_TOKEN = "urn:postroom:a2a:sender-token:1"
"""Extension: a caller appends its own uid to the card's address, as the last token of the subject."""

CARD_PATH = "/.well-known/agent-card.json"
"""Path at which an A2A server serves its card (A2A 1.0)."""

SERVER_SOCKET = "a2a.sock"
"""Name of the socket of a worker's own A2A server, in its state folder."""

INBOX_BINDING = "urn:postroom:a2a:inbox:1"
"""Binding of an agent that Postroom does not run: requests go into its inbox, and wait there."""

MODES = ("text/plain",)

EVERY_MODE = ("text/plain", "application/json", "*/*")

INPUT_MODES: dict[str, tuple[str, ...]] = {"text": MODES}
"""The media types that a worker takes, by its adapter: a plain text has only texts.

All others take every part: a line of JSON carries it, and a coding agent is shown its address.
"""

ANY_MESSAGE: dict[str, Any] = {
    "id": "messages",
    "name": "messages",
    "description": "Takes messages.",
    "tags": ["messages"],
}
"""The one skill of a worker whose template names none."""


def address(uid: str) -> str:
    """The URL of worker `uid`; a caller appends `.<own uid>` to it (`SENDER_TOKEN`)."""
    return f"nats://worker.{check_uid(uid)}.rpc"


def build_card(uid: str, nick: str, template: Template, *, version: str) -> Card:
    """The card of a worker, as its template describes it; texts and lists are cut to their limits."""
    return {
        "name": check_name(nick, "nick"),
        "description": printable(template.description)[:MAX_DESCRIPTION] or f"The worker {nick}.",
        "version": version,
        "supportedInterfaces": [_interface(uid)],
        "capabilities": _capabilities(),
        "defaultInputModes": list(INPUT_MODES.get(template.adapter, EVERY_MODE)),
        "defaultOutputModes": list(MODES),
        "skills": _skills(template),
    }


def outside_card(uid: str, nick: str, kind: str, given: Mapping[str, Any], *, version: str) -> Card:
    """The card of an agent that Postroom does not run.

    Args:
        given: as `read_given` returns it.
        version: of Postroom, where `given` has none.
    """
    return {
        "name": check_name(nick, "nick"),
        "description": f"The {kind} agent {nick}.",
        "version": version,
        "supportedInterfaces": [_inbox_interface(uid)],
        "capabilities": _capabilities(),
        "defaultInputModes": list(EVERY_MODE),
        "defaultOutputModes": list(MODES),
        "skills": [dict(ANY_MESSAGE)],
    } | {name: value for name, value in given.items() if name in _GIVEN}


def _capabilities() -> dict[str, Any]:
    return {
        "streaming": True,
        "pushNotifications": False,
        "extensions": [
            {
                "uri": SENDER_TOKEN,
                "description": "Append your own uid to the subject in the URL.",
                "required": True,
            }
        ],
    }


def _inbox_interface(uid: str) -> dict[str, str]:
    return {
        "url": f"nats://worker.{check_uid(uid)}.inbox",
        "protocolBinding": INBOX_BINDING,
        "protocolVersion": PROTOCOL_VERSION,
    }


def _interface(uid: str) -> dict[str, str]:
    return {
        "url": address(uid),
        "protocolBinding": BINDING,
        "protocolVersion": PROTOCOL_VERSION,
    }


def _skills(template: Template) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    # What everybody may have distinguishes nobody.
    ours = {each.name for each in template.servers if each.command[:1] == (AGENT_COMMAND,)}
    named = [(word, "skill") for word in template.skills] + [
        (word, "mcp") for word in template.mcps if word not in ours
    ]
    for raw, tag in named:
        word = one_line(raw)[:MAX_LABEL]
        if not word or word in found or len(found) == MAX_SKILLS:
            continue
        plain = word.replace("-", " ").replace("_", " ")
        said = f"Uses the MCP server {word}." if tag == "mcp" else f"Can {plain}."
        found[word] = {"id": word, "name": plain, "description": said, "tags": [tag]}
    return list(found.values()) or [dict(ANY_MESSAGE)]


def skills_of(card: Card) -> list[str]:
    """The ids of a card's skills."""
    return [skill["id"] for skill in card["skills"]]


def matches(card: Card, *, skill: str = "", text: str = "") -> bool:
    """Whether a card has `skill` (id, name or tag, in any case) and contains `text` somewhere."""
    if skill and not any(skill.casefold() in _names(entry) for entry in card["skills"]):
        return False
    return text.casefold() in "\n".join(_words(card)).casefold()


def not_offered(card: Card, skill: str) -> str:
    """Why an agent with that card does not do what is asked for by the name of a skill, "" if it does.

    Nothing is refused without a skill, or by an agent without a card, {}.
    """
    skills = card.get("skills") or ()
    if not skill or not card or any(skill.casefold() in _names(each) for each in skills):
        return ""
    offered = ", ".join(str(each.get("id", "")) for each in skills)
    return f"the card does not offer {one_line(skill, 80)!r}; it offers: {offered or 'nothing'}"


def _names(skill: dict[str, Any]) -> set[str]:
    # The card of an agent that Postroom does not run is kept as it was given.
    words = (skill.get("id"), skill.get("name"), *(skill.get("tags") or ()))
    return {word.casefold() for word in words if isinstance(word, str)}


def _words(card: Card) -> Iterable[str]:
    yield from (card["name"], card["description"])
    for skill in card["skills"]:
        yield from (skill["id"], skill["name"], skill["description"], *skill["tags"])


# ── announced cards ──────────────────────────────────────────────────────────────────────────────────


def read_card(payload: bytes, uid: str, nick: str) -> Card:
    """Check and return the card that agent `uid` announces of itself.

    It may describe itself as it likes, but only itself: its nick, its own address, and no field that speaks for
    others (a provider, links, security schemes) or for the control plane (signatures).

    Args:
        uid: of the announcer, as nats-server has checked it.

    Raises:
        MessageTooLarge: it is over `MAX_CARD_BYTES`.
        InvalidInput: it is not a card, or not this agent's; the message says why.
    """
    if len(payload) > MAX_CARD_BYTES:
        raise MessageTooLarge(f"a card has at most {MAX_CARD_BYTES} bytes")
    try:
        card = strict_json.bounded(payload, MAX_DEPTH, MAX_VALUES)
    except ValueError as error:
        raise InvalidInput("the card is not JSON") from error
    _check_object(card, "the card", _CARD)
    if card["name"] != nick:
        raise InvalidInput(f"the card claims the name {one_line(card['name'], 80)!r}")
    _check_interfaces(card["supportedInterfaces"], uid)
    extensions = card["capabilities"].get("extensions", [])
    if SENDER_TOKEN not in [extension["uri"] for extension in extensions]:
        raise InvalidInput(f"the card does not state the extension {SENDER_TOKEN}")
    return card


def _check_interfaces(interfaces: list[dict[str, Any]], uid: str) -> None:
    own = _interface(uid)
    for interface in interfaces:
        url = interface["url"]
        if url != own["url"]:
            raise InvalidInput(f"the card claims the URL {one_line(url, 200)!r}")
        if interface != own:
            raise InvalidInput(f"the card's interface is not {BINDING} {PROTOCOL_VERSION}")
    if len(interfaces) != 1:
        raise InvalidInput("the card has not exactly one interface")


# ── cards that people give ───────────────────────────────────────────────────────────────────────────


def read_given(card: Mapping[str, Any], uid: str, nick: str) -> dict[str, Any]:
    """Check and return what a card says of an agent that Postroom does not run, without what Postroom says itself.

    It may be a card as Postroom serves it: then address and capabilities must be those of the agent, and signatures
    are left out. Every other field is as for an announced card.

    Args:
        uid: "" for an agent that has none yet: its address cannot be in the card.

    Raises:
        MessageTooLarge: it is over `MAX_CARD_BYTES`.
        InvalidInput: it is not a card, or not this agent's; the message says why.
    """
    try:
        size = len(json.dumps(card, ensure_ascii=False).encode("utf-8", "surrogatepass"))
    except RecursionError as error:
        raise InvalidInput("the card is nested too deep") from error
    if size > MAX_CARD_BYTES:
        raise MessageTooLarge(f"a card has at most {MAX_CARD_BYTES} bytes")
    said = {name: value for name, value in card.items() if name != "signatures"}
    if said.pop("name", nick) != nick:
        raise InvalidInput(
            f"the card claims the name {one_line(str(card['name']), 80)!r}",
            remedy=f"its name is the nick, {nick!r}: leave it out",
        )
    own = [_inbox_interface(uid)] if uid else None
    if said.pop("supportedInterfaces", own) != own:
        raise InvalidInput(
            "the card claims an address, and the agent is reached by its inbox here",
            remedy="leave supportedInterfaces out",
        )
    if said.pop("capabilities", _capabilities()) != _capabilities():
        raise InvalidInput(
            "the card claims capabilities, and those of an inbox are Postroom's",
            remedy="leave capabilities out",
        )
    _check_object(said, "the card", _GIVEN)
    return said


Check = Callable[[Any, str], None]


def _check_text(limit: int) -> Check:
    def check(value: Any, where: str) -> None:
        if not isinstance(value, str) or not 0 < len(value) <= limit:
            raise InvalidInput(f"{where} is not a text of 1 to {limit} characters")
        if value != printable(value):
            raise InvalidInput(f"{where} has characters that nobody can see")

    return check


def _check_flag(value: Any, where: str) -> None:
    if not isinstance(value, bool):
        raise InvalidInput(f"{where} is neither true nor false")


def _check_true(value: Any, where: str) -> None:
    if value is not True:  # for false the field is left out
        raise InvalidInput(f"{where} is not true")


def _check_list(item: Check, limit: int = MAX_SKILLS) -> Check:
    def check(value: Any, where: str) -> None:
        if not isinstance(value, list) or not 0 < len(value) <= limit:
            raise InvalidInput(f"{where} is not a list of 1 to {limit} values")
        for number, entry in enumerate(value):
            item(entry, f"{where}[{number}]")

    return check


Shape = dict[str, tuple[bool, Check]]
"""Each field with whether it is required, and its check."""


def _check_object(value: Any, where: str, shape: Shape) -> None:
    if not isinstance(value, dict):
        raise InvalidInput(f"{where} is not an object")
    for name in value:
        if name not in shape:
            raise InvalidInput(f"{where} has the field {one_line(name, 80)!r}, which is not for it")
    for name, (required, check) in shape.items():
        if name in value:
            check(value[name], f"{where}: {name}")
        elif required:
            raise InvalidInput(f"{where} has no {name}")


def _object(shape: Shape) -> Check:
    return lambda value, where: _check_object(value, where, shape)


_WORD = _check_text(MAX_LABEL)
_TEXT = _check_text(MAX_DESCRIPTION)
_WORDS = _check_list(_WORD)

_INTERFACE: Shape = {
    "url": (True, _TEXT),
    "protocolBinding": (True, _WORD),
    "protocolVersion": (True, _WORD),
}
_EXTENSION: Shape = {
    "uri": (True, _TEXT),
    "description": (False, _TEXT),
    "required": (False, _check_true),
}
_CAPABILITIES: Shape = {
    "streaming": (False, _check_flag),
    "pushNotifications": (False, _check_flag),
    "extendedAgentCard": (False, _check_flag),
    "extensions": (False, _check_list(_object(_EXTENSION))),
}
_SKILL: Shape = {
    "id": (True, _WORD),
    "name": (True, _WORD),
    "description": (True, _TEXT),
    "tags": (True, _WORDS),
    "examples": (False, _check_list(_TEXT)),
    "inputModes": (False, _WORDS),
    "outputModes": (False, _WORDS),
}
_CARD: Shape = {
    "name": (True, _TEXT),
    "description": (True, _TEXT),
    "version": (True, _WORD),
    "supportedInterfaces": (True, _check_list(_object(_INTERFACE))),
    "capabilities": (True, _object(_CAPABILITIES)),
    "defaultInputModes": (True, _WORDS),
    "defaultOutputModes": (True, _WORDS),
    "skills": (True, _check_list(_object(_SKILL))),
}
_GIVEN: Shape = {
    name: (False, _CARD[name][1])
    for name in ("description", "version", "defaultInputModes", "defaultOutputModes", "skills")
}
