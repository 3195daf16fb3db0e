"""Questions of agents: what may be chosen. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from postroom.lines.rows import lines_of

MARK = "- "
"""Before each choice, where a question is one text."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One answer that the agent offers, with its explanation; both are the agent's words."""

    label: str
    about: str = ""


def choices_of(given: Mapping[str, Any]) -> list[Choice]:
    """What may be chosen as the answer to the questions in an input; several questions have none together."""
    questions = [each for each in _list(given.get("questions")) if isinstance(each, Mapping)]
    if len(questions) != 1:
        return []
    found = (each for each in _list(questions[0].get("options")) if isinstance(each, Mapping))
    choices = (Choice(_text(each.get("label")), _text(each.get("description"))) for each in found)
    return [choice for choice in choices if choice.label.strip()]


def choices_in(text: str) -> list[Choice]:
    """The choices at the end of a question that is one text: two lines or more that begin with `- `."""
    lines = lines_of(text)
    first = len(lines)
    while first and lines[first - 1].startswith(MARK):
        first -= 1
    found = [Choice(line.removeprefix(MARK).strip()) for line in lines[first:]]
    return found if len(found) > 1 and first else []


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
