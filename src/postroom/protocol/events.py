"""Events: what an agent does, normalised, as its adapter makes them of the agent's own output. Pure.

An event is a JSON object. Its `type` is one of `EventKind`; the other fields depend on it:

    started          session, model, version, resumed
    text, thinking   text, delta? (true: it continues the text before it, within one turn)
    tool_call        call, tool, title, input {}
    tool_result      call, status (`ok`, `error`, `denied`, `interrupted`), output, exit_code?
    usage            input_tokens, output_tokens, cached_tokens?, reasoning_tokens?, cost? (USD); since the event before
    result           status (`completed`, `failed`, `interrupted`), text, reason?
    error            text, code?, fatal?, retry_in? (seconds until the agent tries again)
    control_request  request, kind (`tool`, `question`, `act`), tool, title, input {}, call?, reason?, default,
                     expires_at?, fixed? (true: the agent takes no edited input), edits? (true: it changes nothing but
                     files that lie open in the agent's folder)
    control_response request, decision, by {}, channel, input? {}, reason?
    interrupt        by {}, channel, reason?
    policy           by {}, change (`added`, `removed`, `autonomy`), pattern or autonomy, task?: what the agent may do
                     without asking from now on, with `task` until that ends
    acted            request, done (whether what was allowed is done), text: what became of an act, once it is settled
    stalled          seconds; 0: it goes on
    wall             report, level
    raw              the line is in `raw`

Every event may have `turn`, `task`, `message` (what the turn is for) and `raw` (the source line, cut at `MAX_RAW`).
A `call` is unique in one session only. `request` is the id of the approval (`protocol.approvals`), `expires_at` an RFC
3339 time, absent for never.

Payloads on `worker.<uid>.events` (stream EVENTS): the control plane alone publishes there.

    {"v": 1, "run": "<id of the sidecar's run>", "first": 17, "events": [...]}    reported by a sidecar
    {"v": 1, "events": [...]}                                                     by the control plane itself

`first` numbers a sidecar's events of one run, from 1, without gaps: the same number is the same event. An event's id is
its record's sequence and its place in the record, so ids grow, and a rebuild keeps them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from postroom.errors import ProtocolViolation
from postroom.protocol.limits import MAX_EVENTS, MAX_LABEL, MAX_RAW, MAX_RECORD_VALUES
from postroom.protocol.records import read_record

PLACES = 1024
"""Events that one record may have room for: the factor between a sequence and an event's id."""

MAX_NUMBER = 2**53
"""The largest number of an event in its run: every reader of JSON keeps it exactly."""


class EventKind(StrEnum):
    """What an event says (docs/architecture.md, Events)."""

    STARTED = "started"
    TEXT = "text"
    THINKING = "thinking"
    TOOL_CALL = "tool_call"
    TOOL_RESULT = "tool_result"
    USAGE = "usage"
    RESULT = "result"
    ERROR = "error"
    CONTROL_REQUEST = "control_request"
    CONTROL_RESPONSE = "control_response"
    INTERRUPT = "interrupt"
    POLICY = "policy"
    TERMINAL = "terminal"
    ACTED = "acted"
    STALLED = "stalled"
    WALL = "wall"
    RAW = "raw"


@dataclass(frozen=True, slots=True)
class EventBatch:
    """One record of EVENTS.

    Attributes:
        run: id of the sidecar's run, "" for events of the control plane.
        first: number of the first event in its run; 0 for those of the control plane.
    """

    events: tuple[Mapping[str, Any], ...]
    run: str = ""
    first: int = 0

    def encode(self) -> bytes:
        """The record's payload."""
        record: dict[str, Any] = {"v": 1, "events": list(self.events)}
        if self.run:
            record |= {"run": self.run, "first": self.first}
        return json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode(
            "utf-8", "replace"
        )

    @classmethod
    def decode(cls, payload: bytes) -> EventBatch:
        """The batch in a payload; raises ProtocolViolation."""
        record = read_record(payload, most=MAX_RECORD_VALUES)
        events, run, first = record.get("events"), record.get("run", ""), record.get("first", 0)
        if not isinstance(events, list) or len(events) > MAX_EVENTS:
            raise ProtocolViolation("not a list of events")
        if not all(isinstance(event, dict) for event in events):
            raise ProtocolViolation("an event is not an object")
        if (
            not isinstance(run, str)
            or len(run) > MAX_LABEL
            or type(first) is not int
            or not 0 <= first <= MAX_NUMBER
            or bool(run) != bool(first)
        ):
            raise ProtocolViolation("run and first do not number the events")
        return cls(tuple(events), run, first)


def event_id(sequence: int, place: int) -> int:
    """The id of the event at `place` (from 0) of the record with that sequence."""
    return sequence * PLACES + place


def sequence_of(event: int) -> int:
    """The sequence of the record that has the event with that id."""
    return event // PLACES


def cut(raw: str) -> str:
    """A source line as it is kept beside its event."""
    return raw if len(raw) <= MAX_RAW else raw[:MAX_RAW] + "…"
