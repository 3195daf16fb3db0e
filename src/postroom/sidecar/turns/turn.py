"""One turn of a coding agent: what it is for, what happens in it, and what its end means. Pure, but for its clock."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from postroom.protocol.events import EventKind
from postroom.protocol.limits import MAX_TEXT_ANSWER
from postroom.protocol.verbs import Reply, Seen
from postroom.sidecar.adapters.adapter import Incoming, IncomingTask, Said
from postroom.sidecar.adapters.turns import Event
from postroom.sidecar.adapters.wording import Request, answered, failed, is_post, wants_answer
from postroom_a2a.text import printable

COMPLETED, FAILED, INTERRUPTED = "completed", "failed", "interrupted"


@dataclass(frozen=True, slots=True)
class Result:
    """The end of a turn.

    Attributes:
        status: `completed`, `failed` or `interrupted`.
        at_end: it was concluded from the end of the program.
    """

    status: str
    text: str = ""
    reason: str = ""
    at_end: bool = False

    @classmethod
    def of(cls, fields: Mapping[str, Any], *, at_end: bool) -> Result:
        """The result in the fields of a RESULT event."""
        status = fields.get("status")
        known = status if status in {COMPLETED, FAILED, INTERRUPTED} else FAILED
        text, reason = str(fields.get("text") or ""), str(fields.get("reason") or "")
        return cls(str(known), text, reason, at_end)


_GOES_ON = frozenset(
    {EventKind.TEXT, EventKind.THINKING, EventKind.TOOL_CALL, EventKind.TOOL_RESULT}
)
"""Events that say that what failed before works again."""

_HARMLESS = frozenset({"warning", "control", "session-lost"})
"""Codes of errors after which the agent goes on as if nothing had happened."""


def trouble_in(event: Event) -> tuple[str, float] | None:
    """The error in an event, and seconds until the agent tries again; "" once it goes on, None for neither."""
    fields = event.fields
    if event.kind is EventKind.RESULT:
        failed = fields.get("status") == FAILED
        return str(fields.get("reason") or "the turn failed") if failed else "", 0.0
    if event.kind is EventKind.ERROR and fields.get("code") not in _HARMLESS:
        return str(fields.get("text") or "an error"), float(fields.get("retry_in") or 0.0)
    return ("", 0.0) if event.kind in _GOES_ON else None


@dataclass(slots=True, eq=False)
class Turn:
    """A turn that goes on.

    Attributes:
        began, last: when it began, and when the agent last did something (loop time).
        stop: why the sidecar ends it, "" while it does not.
        held: what the sidecar stops is not given back: a person has to do something first.
        canceled: its task is canceled; who canceled it says so in the log.
        yields: it only waited for an answer and made room for another one; the answer begins a new turn.
        asking: requests of the agent that wait for a person.
        changed: set when `asking` changes.
    """

    id: str
    request: Request
    began: float
    last: float
    result: asyncio.Future[Result]
    stop: str = ""
    held: bool = False
    canceled: bool = False
    yields: bool = False
    asking: int = 0
    waited: float = 0.0
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def about(self) -> dict[str, str]:
        """The fields that each of its events has."""
        kind = "task" if isinstance(self.request, IncomingTask) else "message"
        return {"turn": self.id, kind: self.request.id}

    def end(self, result: Result) -> None:
        """Set its result, if it has none."""
        if not self.result.done():
            self.result.set_result(result)


def conclude(turn: Turn, result: Result) -> list[Said]:
    """The actions of a turn that has ended and was not lost."""
    request = turn.request
    if result.status == COMPLETED and not result.at_end:
        return answered(
            request, _fitting(result.text)
        )  # also if it was to be stopped: it came first
    if turn.stop:
        return _stopped(request, turn.stop)
    if result.status == COMPLETED:
        return answered(request, _fitting(result.text))
    why = result.reason or result.text
    if result.status == INTERRUPTED:
        return _stopped(request, why or "the agent's turn was interrupted")
    return failed(request, _fitting(why) or "the agent has failed without a reason")


def _stopped(request: Request, why: str) -> list[Said]:
    if isinstance(request, Incoming):
        if is_post(request):
            return []
        return [Reply(request.id, why) if wants_answer(request) else Seen(request.id)]
    return failed(request, why)


def _fitting(text: str) -> str:
    """A text of the agent's as an answer: without control characters, and not too long for a record."""
    said = printable(text).strip()
    if len(said.encode("utf-8", "replace")) <= MAX_TEXT_ANSWER:
        return said
    # In the worst case a character takes four bytes.
    note = "\n… the rest is left out; it is in the events of this turn"
    return said[: MAX_TEXT_ANSWER // 4] + note
