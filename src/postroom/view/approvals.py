"""Approvals, what may be chosen as an answer, and the policy of a worker. Agents wrote it, so it is made harmless."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from postroom.protocol.autonomy import Autonomy
from postroom.view.words import address, clock, lines_of
from postroom_a2a.text import one_line

if TYPE_CHECKING:
    from postroom.protocol.shapes import Approval, ApprovalAnswer, Policy, SetAutonomy

_COMMANDS = ("command", "cmd", "script")
_PATHS = ("file_path", "path", "notebook_path", "filename")


def decider(answer: ApprovalAnswer) -> str:
    """`@nick` of a person, or what has decided by itself."""
    return address(answer["by"]) if answer["by"] else f"the {one_line(answer['channel'], 40)}"


def what(approval: Approval) -> str:
    """What is to be done, on one line."""
    given = approval["input"]
    command = next((_command(given[key]) for key in _COMMANDS if key in given), "")
    path = next((given[key] for key in _PATHS if isinstance(given.get(key), str)), "")
    said = command or approval["title"] or path or json.dumps(given)
    return one_line(said, 300)


def outcome(approval: Approval, now: float) -> str:
    """How it stands: `allowed by @maria at 12:00:00 over cli (why)`."""
    answer = approval["answer"]
    state = one_line(approval["state"], 40)
    if answer is None:
        return state
    why = f" ({one_line(answer['reason'], 300)})" if answer["reason"] else ""
    return f"{state} by {decider(answer)} at {clock(answer['at'], now)} over {one_line(answer['channel'], 40)}{why}"


def ending(approval: Approval) -> str:
    """How it came that it waits no more: `allowed by @maria over cli (why)`."""
    answer = approval["answer"]
    name = address(approval["worker"])
    channel = answer["channel"] if answer is not None else ""
    if answer is None or approval["state"] == "pending":
        return one_line(approval["state"], 40)
    match channel:
        case "policy":
            return f"{one_line(approval['state'], 40)} by the rules of {name}"
        case "agent":
            return f"withdrawn: {name} no longer asks"
        case "room":
            return f"withdrawn: what {name} asked it for has ended"
        case "clock":
            return f"expired, which counts as {one_line(approval['default'], 40)}"
    why = f" ({one_line(answer['reason'], 300)})" if answer["reason"] else ""
    return (
        f"{one_line(approval['state'], 40)} by {decider(answer)} over {one_line(channel, 40)}{why}"
    )


def _command(value: Any) -> str:
    if isinstance(value, list) and value and all(isinstance(word, str) for word in value):
        return shlex.join(value)
    return value if isinstance(value, str) else ""


# ── what may be chosen ──

MARK = "- "
"""Before each choice, where a question is one text."""


@dataclass(frozen=True, slots=True)
class OfferedAnswer:
    """One answer that the agent offers, with its explanation; both are the agent's words."""

    label: str
    about: str = ""


def choices_of(given: Mapping[str, Any]) -> list[OfferedAnswer]:
    """What may be chosen as the answer to the questions in an input; several questions have none together."""
    questions = [each for each in _list(given.get("questions")) if isinstance(each, Mapping)]
    if len(questions) != 1:
        return []
    found = (each for each in _list(questions[0].get("options")) if isinstance(each, Mapping))
    choices = (
        OfferedAnswer(_text(each.get("label")), _text(each.get("description"))) for each in found
    )
    return [choice for choice in choices if choice.label.strip()]


def choices_in(text: str) -> list[OfferedAnswer]:
    """The choices at the end of a question that is one text: two lines or more that begin with `- `."""
    lines = lines_of(text)
    first = len(lines)
    while first and lines[first - 1].startswith(MARK):
        first -= 1
    found = [OfferedAnswer(line.removeprefix(MARK).strip()) for line in lines[first:]]
    return found if len(found) > 1 and first else []


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def autonomy_of(policy: Policy) -> tuple[str, SetAutonomy | None]:
    """How much is done unasked in all turns, and who has set that; None where the template says it."""
    kept = next((each for each in policy["autonomy"] if not each["task"]), None)
    if kept is not None:
        return kept["autonomy"], kept
    return (Autonomy.ALL if policy["autonomous"] else Autonomy.ASK), None


def origin(policy: Policy) -> str:
    """The template of a worker, by the name of its file."""
    name = one_line(PurePath(policy["template"]).name, 80)
    return f"template {name}" if name else "its template"
