"""What somebody else's agent says of a task, as reports of it here: cleaned and bounded, since it is hostile. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from postroom.errors import ProtocolViolation
from postroom.protocol.blobs import PREFIX
from postroom.protocol.content import Content, parts_of
from postroom.protocol.limits import MAX_DEPTH, MAX_LABEL, MAX_PARTS, MAX_VALUES
from postroom_a2a.bounds import MAX_ID
from postroom_a2a.messages import ROLE_USER
from postroom_a2a.strict_json import TooMuch, check, dumps
from postroom_a2a.task_state import TaskState
from postroom_a2a.tasks import Event, Message, Task
from postroom_a2a.text import one_line

REMOTE = "urn:postroom:a2a:remote:1"
"""Key in the metadata of a task: the fields of its `Place`."""

MAX_ARTIFACTS = 256
"""Artifacts of one task of somebody else's agent: each snapshot repeats them all."""


@dataclass(frozen=True, slots=True)
class Place:
    """The task at the other side.

    Attributes:
        task, context: its ids there, "" before they are known.
        answers: answers that were given there.
        asked: mark of the question that is known here (`StatusReport.mark`).
    """

    task: str = ""
    context: str = ""
    answers: int = 0
    asked: str = ""

    @classmethod
    def of(cls, ours: Task) -> Place:
        """The place that a task here names."""
        metadata = ours.get("metadata")
        said = metadata.get(REMOTE) if isinstance(metadata, dict) else None
        if not isinstance(said, dict):
            return cls()
        answers = said.get("answers")
        return cls(
            str(said.get("task") or ""),
            str(said.get("context") or ""),
            answers if isinstance(answers, int) else 0,
            str(said.get("asked") or ""),
        )

    @property
    def metadata(self) -> dict[str, Any]:
        """As a report has it."""
        return {REMOTE: asdict(self)}


@dataclass(frozen=True, slots=True)
class StatusReport:
    """A state, with what was said with it; `mark` tells two statuses apart that say the same."""

    state: TaskState
    said: Content | None = None
    mark: str = ""


@dataclass(frozen=True, slots=True)
class ArtifactReport:
    """An artifact, or a further piece of one."""

    artifact: dict[str, Any]
    append: bool = False
    last: bool = True


Report = StatusReport | ArtifactReport


def reports_of(event: Event, ours: Task) -> list[Report]:
    """What an event says that the task here does not have yet.

    Args:
        ours: the task as it is here; counts for an event that shows the whole task, which may come again.

    Raises:
        ProtocolViolation: it is about another task, has no state of A2A, or more artifacts than are taken.
    """
    known, named = Place.of(ours).task, task_of(event)
    if known and named and named != known:
        raise ProtocolViolation("it says something of another task than the one that it was given")
    if "message" in event:
        return [StatusReport(TaskState.COMPLETED, _content(event["message"]))]
    if "task" in event:
        return _snapshot(event["task"], ours)
    if "statusUpdate" in event:
        found = _status(event["statusUpdate"])
        return [] if _is_nothing(found, ours) else [found]
    update = event["artifactUpdate"]
    made = _artifact(
        update.get("artifact"), bool(update.get("append")), bool(update.get("lastChunk"))
    )
    known = {each["artifactId"] for each in ours.get("artifacts", ())}
    if made is not None and made.artifact["artifactId"] not in known:
        _check_number(len(known) + 1)
    return [] if made is None else [made]


def task_of(event: Event) -> str:
    """The id that the other side has for the task that an event is about, "" where it names none."""
    [held] = event.values() if len(event) == 1 else [{}]
    named = held.get("id" if "task" in event else "taskId") if isinstance(held, Mapping) else None
    return named if isinstance(named, str) else ""


def _snapshot(task: Task, ours: Task) -> list[Report]:
    found: list[Report] = []
    here = {each["artifactId"]: each for each in ours.get("artifacts", ())}
    theirs = task.get("artifacts")
    theirs = theirs if isinstance(theirs, list) else []
    _check_number(len(theirs))
    for each in theirs:
        made = _artifact(each, append=False, last=True)
        known = here.get(made.artifact["artifactId"]) if made is not None else None
        if made is not None and (known is None or known["parts"] != made.artifact["parts"]):
            found.append(made)
    status = _status(task)
    if not _is_nothing(status, ours) and not _is_same(status, ours):
        found.append(status)
    return found


def _check_number(artifacts: int) -> None:
    if artifacts > MAX_ARTIFACTS:
        raise ProtocolViolation(f"it has more than {MAX_ARTIFACTS} artifacts")


def state_in(task: Mapping[str, Any]) -> TaskState:
    """The state in a task or a status update.

    Raises:
        ProtocolViolation: it has none of A2A.
    """
    status = task.get("status")
    try:
        return TaskState.from_a2a(status.get("state") if isinstance(status, Mapping) else None)
    except ValueError as error:
        raise ProtocolViolation("its answer has no state of a task") from error


def has_message(task: Mapping[str, Any], named: str) -> bool:
    """Whether the history of a task has the message with that id."""
    history = task.get("history")
    said = history if isinstance(history, list) else []
    return any(isinstance(each, dict) and each.get("messageId") == named for each in said)


def _status(holder: Mapping[str, Any]) -> StatusReport:
    message = holder["status"].get("message") if isinstance(holder.get("status"), Mapping) else None
    said = _content(message) if isinstance(message, Mapping) else None
    named = message.get("messageId") if isinstance(message, Mapping) else None
    state = state_in(holder)  # so there is a status
    mark = f"{holder['status'].get('timestamp') or ''}/{named or ''}"[:MAX_ID]
    return StatusReport(state, said, mark)


def _is_nothing(report: StatusReport, ours: Task) -> bool:
    """Whether it is only that the task is there, or is worked on, or the question that has an answer here."""
    if report.state is TaskState.SUBMITTED:
        return True
    before = ours["status"]["state"]
    if report.state.interrupted and report.mark == Place.of(ours).asked:
        return True
    return report.state is TaskState.WORKING and report.said is None and before == report.state.a2a


def _is_same(report: StatusReport, ours: Task) -> bool:
    status = ours["status"]
    message = status.get("message")
    parts = message.get("parts") if isinstance(message, Mapping) else None
    said = [dict(part) for part in report.said.parts] if report.said is not None else None
    return status["state"] == report.state.a2a and parts == said


def _artifact(given: Any, append: bool, last: bool) -> ArtifactReport | None:
    if not isinstance(given, Mapping):
        return None
    parts = _parts(given)
    if not parts:
        return None
    made: dict[str, Any] = {"artifactId": one_line(str(given.get("artifactId") or "a"))[:MAX_ID]}
    if name := one_line(str(given.get("name") or ""))[:MAX_LABEL]:
        made["name"] = name
    return ArtifactReport({**made, "parts": parts}, append, last)


def _content(message: Mapping[str, Any]) -> Content | None:
    made = Content(tuple(_parts(message)))
    return None if made.empty else made


def _parts(holder: Mapping[str, Any]) -> list[dict[str, Any]]:
    found = parts_of(holder)[:MAX_PARTS]
    try:
        check(dumps(found), MAX_DEPTH, MAX_VALUES)
    except TooMuch as error:
        raise ProtocolViolation(f"it says something that is {error}") from error
    return [_foreign(part) for part in found]


def _foreign(part: dict[str, Any]) -> dict[str, Any]:
    """A part; a name of a blob is one of the other side, and must not name a blob that is here."""
    url = part.get("url")
    if not (isinstance(url, str) and url.startswith(PREFIX)):
        return part
    name = one_line(str(part.get("filename") or url))[:MAX_LABEL]
    return {"text": f"[the file {name} stays with the agent: its address counts there alone]"}


# ── what goes out ────────────────────────────────────────────────────────────────────────────────────


def answers_in(ours: Task) -> list[Message]:
    """The answers to the task's questions, in their order; the first message is the request."""
    history: Sequence[Any] = ours.get("history") or ()
    return [
        each for each in history[1:] if isinstance(each, dict) and each.get("role") == ROLE_USER
    ]
