"""Tasks, their changes, and what they have used, one line each.

Agents wrote the texts, so all of it is made harmless here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from postroom.protocol.limits import SHORT_ID
from postroom.view.words import address, part_lines, span
from postroom_a2a.task_state import INTERRUPTED, TaskState
from postroom_a2a.text import one_line
from postroom_a2a.times import parse_time

if TYPE_CHECKING:
    from postroom.protocol.shapes import Current, Party, Task, TaskEvent, Usage

PIECE = 100
"""Characters of an artifact's piece on its line; the result has all of it."""


def short(id_: str) -> str:
    """The beginning of a task's or message's id, as people see it."""
    return one_line(id_)[:SHORT_ID]


def is_question(state: str) -> bool:
    """Whether a task in `state` waits for an answer."""
    return state in INTERRUPTED


def accepted_line(task: Task) -> str:
    """The full id of a new task, and `accepted` while no worker has begun it."""
    new = task["state"] == TaskState.SUBMITTED
    return f"{one_line(task['id'])} {'accepted' if new else one_line(task['state'])}"


def answer_hint(task_id: str) -> str:
    """The command that answers a task's question."""
    return f"postroom task answer {short(task_id)} TEXT"


def question_of(task: Task) -> str:
    """What a task asks, on one line."""
    return one_line(task["status_text"] or task["detail"] or task["state"], 300)


def kept(task: Task) -> str:
    """What keeps a task from going on; "" for nothing but its question."""
    detail, said = one_line(task["detail"], 300), one_line(task["status_text"])
    if is_question(task["state"]):
        return "" if not said or said.startswith(detail.removesuffix("…")) else detail
    return "" if task["final"] else detail


def run_time(task: Task | Current, now: float, until: str = "") -> str:
    """How long the worker has worked at a task, or did; "" before it began."""
    began = task.get("started_at")
    if began is None:
        return ""
    return span((parse_time(until) if until else now) - parse_time(began))


class TaskUpdates:
    """Describes the changes of one task, oldest first; it remembers the attempt of the last one."""

    def __init__(self, worker: Party) -> None:
        self._asker = address(worker)
        self._attempt = 1

    def parts(self, event: TaskEvent) -> tuple[str, str]:
        """The change in a few words, and the text."""
        state, piece = one_line(event["state"], 40), event["artifact"]
        again = event["attempt"] > self._attempt
        self._attempt = max(self._attempt, event["attempt"])
        if piece is not None:
            name = one_line(piece["name"] or piece["id"], 60)
            more = " (more)" if piece["append"] else ""
            others = part_lines(event)
            # The text of an artifact without one is the URL of its file.
            text = (
                ""
                if others and not any("text" in part for part in event.get("parts", ()))
                else event["text"]
            )
            return f"artifact {name}{more}", _with(one_line(text, PIECE), others)
        if event.get("answer") or event.get("answer_parts"):
            answer = {"parts": event.get("answer_parts", [])}
            return "answered", _with(event.get("answer", ""), part_lines(answer))
        said = _with(event["text"], part_lines(event))
        if again and state == TaskState.WORKING:
            return f"attempt {event['attempt']}", said
        if is_question(state):
            reason = " (to be let in)" if state == TaskState.AUTH_REQUIRED else ""
            return f"{self._asker} asks{reason}", said
        if event["kind"] == "task" and not event["final"]:
            return f"{state}, {self._asker} has taken it", ""
        return state, said


def _with(text: str, lines: Sequence[str]) -> str:
    """A text, and a line for each part beside it."""
    return "\n".join([*([text] if text.strip() else []), *lines])


# ── what was used ──

NOTHING: Usage = {"input_tokens": 0, "output_tokens": 0, "cost": 0.0}

_UNITS = ((10**9, "G"), (10**6, "M"), (10**3, "k"))


def amount(count: int) -> str:
    """A number of tokens in few characters: `950`, `12.3k`, `4.6M`."""
    for unit, letter in _UNITS:
        if count >= unit:
            return f"{count / unit:.1f}{letter}"
    return str(count)


def dollars(cost: float) -> str:
    """US dollars; a cost below a cent is not shown as nothing."""
    return f"${cost:,.2f}" if cost >= 0.01 or cost <= 0 else "<$0.01"


def usage_cell(used: Usage) -> str:
    """Tokens and cost in a cell of a table, `-` where nothing was used."""
    tokens = used["input_tokens"] + used["output_tokens"]
    words = [amount(tokens)] if tokens else []
    return " ".join([*words, *([dollars(used["cost"])] if used["cost"] else [])]) or "-"


def usage_line(used: Usage) -> str:
    """One line, "" where nothing was used."""
    tokens_in, tokens_out = used["input_tokens"], used["output_tokens"]
    if not (tokens_in or tokens_out or used["cost"]):
        return ""
    cost = f", {dollars(used['cost'])}" if used["cost"] else ""
    return f"used {tokens_in:,} tokens in, {tokens_out:,} out{cost}"
