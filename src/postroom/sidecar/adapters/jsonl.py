"""Adapter `jsonl`: one JSON object per line in both directions, UTF-8.

`protocol.verbs` has the lines that an agent may print; any other line goes to the log. It reads

    {"type":"hello"|"message"|"post"|"receipt"|"agents"|"error"|"stop", ...}
    {"type":"task"|"input"|"cancel", ...}            a task that it works on
    {"type":"delegated"|"task_update", ...}          a task that it asked for
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from postroom.errors import InvalidInput
from postroom.protocol.fields import kept_ref
from postroom.protocol.traces import TRACEPARENT
from postroom.protocol.verbs import VERBS
from postroom.sidecar.adapters.adapter import (
    End,
    Incoming,
    IncomingTask,
    MalformedLine,
    Output,
    Said,
    overlong,
    parts_or_text,
)
from postroom.sidecar.lines import LineReader, Overlong
from postroom_a2a import strict_json


class JsonLines:
    """Adapter for programs that speak Postroom's own lines."""

    def __init__(self) -> None:
        self._lines = LineReader()

    def feed(self, data: bytes) -> list[Said]:
        """The actions in the lines that are complete; an error for the agent for one that is too long."""
        return [said for line in self._lines.feed(data) for said in self._read(line)]

    def finish(self, end: End) -> list[Said]:  # noqa: ARG002
        """The action in a last line without its end."""
        return [said for line in self._lines.finish() for said in self._read(line)]

    def _read(self, line: str | Overlong) -> list[Said]:
        if isinstance(line, Overlong):
            return [overlong(line), MalformedLine("a line was too long and was skipped")]
        record = _decode(line)
        if record is None:
            return [Output(line, "no JSON")] if line.strip() else []
        action = VERBS.get(str(record.get("type")))
        if action is None or not action.verb.line:
            return [Output(line, "of no known type")]
        try:
            return [action.read(record)]
        except InvalidInput as error:
            return [MalformedLine(error.message, kept_ref(record))]

    def render(self, message: Incoming) -> bytes:
        """A `message` line, or a `post` line for what came from a feed."""
        record: dict[str, Any] = {"type": "message", **message.as_json()}
        if message.to.startswith("#"):
            record = {key: record[key] for key in _OF_A_POST if key in record}
            record |= {"type": "post", "project": message.to[1:]}
        return self.render_control(record)

    def render_task(self, task: IncomingTask) -> bytes:
        """A `task` line; `history` is in it where more than the request was said."""
        record: dict[str, Any] = {
            "type": "task",
            "id": task.id,
            "context": task.thread,
            "thread": task.thread,
            "from": task.sender.as_json(),
            "text": task.text,
            "parts": parts_or_text(task.parts, task.text),
            "subject": task.subject,
            "skill": task.skill,
            "attempt": task.attempt,
            "resumed": task.resumed,
            "sent_at": task.sent_at,
        }
        if task.trace:
            record[TRACEPARENT] = task.trace
        if task.history:
            record["history"] = [
                {
                    "role": said.role,
                    "text": said.text,
                    "parts": parts_or_text(said.parts, said.text),
                }
                for said in task.history
            ]
        return self.render_control(record)

    def render_control(self, record: Mapping[str, Any]) -> bytes:
        """The record as one line of ASCII, so that no reader can trip over an encoding or a line separator."""
        return _to_ascii(record).encode("ascii") + b"\n"


_OF_A_POST = ("id", "from", "text", "parts", "subject", "thread", "sent_at", TRACEPARENT)

# Made once: `json.dumps` makes one for each call with an option.
_to_ascii = json.JSONEncoder(separators=(",", ":")).encode


def _decode(line: str) -> dict[str, Any] | None:
    if not line.lstrip().startswith("{"):
        return None
    try:
        record = strict_json.loads(line.encode(errors="surrogatepass"))
    except ValueError:
        return _decode_leniently(line)
    return record if isinstance(record, dict) else None


def _decode_leniently(line: str) -> dict[str, Any] | None:
    """What many writers of JSON make beside JSON: NaN, infinities, lone surrogates."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None
