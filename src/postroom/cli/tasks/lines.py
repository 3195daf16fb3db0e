"""Tasks and their changes, one line each. Agents wrote their texts, so all of it is made harmless here."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import click

from postroom.cli.output import Cell, address, block, clock, span
from postroom.protocol.blobs import PREFIX, SHA256
from postroom.protocol.limits import SHORT_ID
from postroom_a2a.task_state import INTERRUPTED, TaskState
from postroom_a2a.text import one_line
from postroom_a2a.times import parse_time

if TYPE_CHECKING:
    from postroom.protocol.shapes import Artifact, Current, Party, Task, TaskEvent

PIECE = 100
"""Characters of an artifact's piece on its line; the result has all of it."""

HEAD = ("ID", "STATE", "WORKER", "FROM", "TIME", "TASK", "LAST")

COLOURS: dict[str, str] = {
    TaskState.WORKING: "green",
    TaskState.INPUT_REQUIRED: "yellow",
    TaskState.AUTH_REQUIRED: "yellow",
    TaskState.COMPLETED: "green",
    TaskState.FAILED: "red",
    TaskState.REJECTED: "red",
}


def short(id_: str) -> str:
    """The beginning of a task's or message's id, as people see it."""
    return one_line(id_)[:SHORT_ID]


def colour_of(state: str) -> str | None:
    """The colour of a state; None for one that needs no attention, or that this version does not know."""
    return COLOURS.get(state)


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


def size_of(size: int | None) -> str:
    """`4.8 MB` for a number of bytes; `unknown size` for None."""
    if size is None:
        return "unknown size"
    for unit, name in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size} bytes"


def file_lines(artifact: Artifact) -> list[str]:
    """For each file of an artifact its name, type and size, and the command that fetches it."""
    lines = []
    for file in artifact.get("files", []):
        # An agent chose the name: it must neither leave this folder nor be taken for an option or a hidden file.
        name = one_line(file["filename"].replace("/", "_"), 100).lstrip("-.") or "artifact"
        kind = f", {one_line(file['mediaType'], 60)}" if file["mediaType"] else ""
        url = one_line(file["url"], 100)
        lines.append(f"{name} ({size_of(file['size'])}{kind})")
        if SHA256.fullmatch(url.removeprefix(PREFIX)):
            lines.append(f"    get it: postroom blob get {url} -o {shlex.quote(name)}")
        else:
            lines.append(f"    at {url}")
    return lines


def run_time(task: Task | Current, now: float, until: str = "") -> str:
    """How long the worker has worked at a task, or did; "" before it began."""
    began = task.get("started_at")
    if began is None:
        return ""
    return span((parse_time(until) if until else now) - parse_time(began))


def row(task: Task, now: float) -> list[Cell]:
    """A task in a table under `HEAD`."""
    state = task["state"]
    return [
        Cell(short(task["id"])),
        Cell(state, colour_of(state), bold=is_question(state), dim=state == TaskState.CANCELED),
        Cell(address(task["worker"])),
        Cell(address(task["requester"])),
        Cell(run_time(task, now, task["updated_at"] if task["final"] else "")),
        Cell(task["text"]),
        Cell(_last(task)),
    ]


def _last(task: Task) -> str:
    """The worker's last text, and what keeps it from going on."""
    said = one_line(task["status_text"])
    detail = one_line(task["detail"])
    if task["final"] or not said or said.startswith(detail.removesuffix("…")):
        return detail or said
    return f"{detail}; {said}" if detail else said


class Updates:
    """Describes the changes of one task, oldest first; it remembers the attempt of the last one.

    Args:
        now: the present, in seconds since the epoch.
    """

    def __init__(self, worker: Party, now: float) -> None:
        self._asker = address(worker)
        self._now = now
        self._attempt = 1

    def line(self, event: TaskEvent) -> str:
        """One change; further lines of a text are indented under it."""
        label, colour, text = self.parts(event)
        when = click.style(clock(event["at"], self._now), dim=True)
        shown = click.style(label, fg=colour)
        return block(f"{when} {shown}: ", text) if text.strip() else f"{when} {shown}"

    def parts(self, event: TaskEvent) -> tuple[str, str | None, str]:
        """The change in a few words, their colour, and the text."""
        label, text = self._parts(event)
        return label, colour_of(event["state"]), text

    def _parts(self, event: TaskEvent) -> tuple[str, str]:
        state, piece = one_line(event["state"], 40), event["artifact"]
        again = event["attempt"] > self._attempt
        self._attempt = max(self._attempt, event["attempt"])
        if piece is not None:
            name = one_line(piece["name"] or piece["id"], 60)
            more = " (more)" if piece["append"] else ""
            return f"artifact {name}{more}", one_line(event["text"], PIECE)
        if answer := event.get("answer", ""):
            return "answered", answer
        if again and state == TaskState.WORKING:
            return f"attempt {event['attempt']}", event["text"]
        if is_question(state):
            reason = " (to be let in)" if state == TaskState.AUTH_REQUIRED else ""
            return f"{self._asker} asks{reason}", event["text"]
        if event["kind"] == "task" and not event["final"]:
            return f"{state}, {self._asker} has taken it", ""
        return state, event["text"]
