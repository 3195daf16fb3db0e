"""What the Agent Card of somebody else's agent may say here: cleaned, cut and checked, since it is hostile. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

from postroom.directory.cards import read_given
from postroom.errors import InvalidInput, InvalidName
from postroom.protocol.ids import check_nick
from postroom.protocol.input_modes import EVERYTHING
from postroom.protocol.limits import MAX_DESCRIPTION, MAX_LABEL, MAX_SKILLS
from postroom_a2a.text import one_line, printable

LONGEST_NICK = 32
MOST_NAMESAKES = 100
"""Nicks that are tried for one agent."""

_MODE = re.compile(r"[\w.+-]+/[\w.+*-]+|\*/\*|text|data|file")
_OTHER = re.compile(r"[^a-z0-9]+")


def nicks_for(card: dict[str, Any], url: str) -> Iterable[str]:
    """Nicks for the agent of a card, the best one first; none of them is reserved."""
    for said in (str(card.get("name", "")), urlsplit(url).hostname or "", "agent"):
        nick = _OTHER.sub("-", said.lower())[:LONGEST_NICK].strip("-")
        for number in range(1, MOST_NAMESAKES):
            tried = nick if number == 1 else f"{nick}-{number}"
            try:
                yield check_nick(tried)
            except InvalidName:
                break


def cleaned(card: dict[str, Any]) -> dict[str, Any]:
    """What a card says of its agent, as `directory.cards.read_given` takes it.

    What is malformed is left out: a card that says too much is no reason not to work with its agent. The media types
    that it takes are advice: many servers name a default of their framework, and take more. So a task goes out, and who
    does not take it says so.
    """
    said: dict[str, Any] = {}
    if description := _text(card.get("description"), MAX_DESCRIPTION):
        said["description"] = description
    if version := _word(card.get("version")):
        said["version"] = version
    for name in ("defaultInputModes", "defaultOutputModes"):
        if modes := _modes(card.get(name)):
            said[name] = modes
    said["defaultInputModes"] = _advice(said.get("defaultInputModes", ()))
    skills: dict[str, dict[str, Any]] = {}
    for each in _objects(card.get("skills"))[:MAX_SKILLS]:
        skill = _skill(each)
        if skill is not None:
            skills.setdefault(skill["id"], skill)
    if skills:
        said["skills"] = list(skills.values())
    try:
        return read_given(said, "", "")
    except InvalidInput:  # too large in all
        return {name: value for name, value in said.items() if name != "skills"}


def _skill(given: dict[str, Any]) -> dict[str, Any] | None:
    name = _word(given.get("id")) or _word(given.get("name"))
    if not name:
        return None
    skill: dict[str, Any] = {
        "id": name,
        "name": _word(given.get("name")) or name,
        "description": _text(given.get("description"), MAX_DESCRIPTION) or name,
        "tags": _words(given.get("tags")) or ["skill"],
    }
    if modes := _modes(given.get("inputModes")):
        skill["inputModes"] = _advice(modes)
    return skill


def _text(value: object, most: int) -> str:
    return printable(value)[:most].strip() if isinstance(value, str) else ""


def _word(value: object) -> str:
    return one_line(value)[:MAX_LABEL].strip() if isinstance(value, str) else ""


def _words(value: object) -> list[str]:
    found = [_word(each) for each in value] if isinstance(value, list) else []
    return [each for each in found if each][:MAX_SKILLS]


def _modes(value: object) -> list[str]:
    return [each for each in _words(value) if _MODE.fullmatch(each)]


def _advice(modes: Iterable[str]) -> list[str]:
    return list(dict.fromkeys((*list(modes)[: MAX_SKILLS - 1], EVERYTHING)))


def _objects(value: object) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
