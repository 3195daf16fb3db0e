"""Adapter `jsonl`: one JSON object per line in both directions, UTF-8.

    to the agent    {"type":"hello"|"message"|"post"|"receipt"|"agents"|"error"|"stop", ...}
                    {"type":"task"|"input"|"cancel", ...}            a task that it works on
                    {"type":"delegated"|"task_update", ...}          a task that it asked for
    from the agent  {"type":"send"|"reply"|"post"|"seen"|"find"|"status", ...}
                    {"type":"update"|"artifact"|"complete"|"fail"|"reject"|"input_required"|"canceled", ...}
                    {"type":"delegate"|"cancel_task"|"answer_task", ...}

Anything else that the agent prints is output for the log.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from postroom.errors import InvalidInput
from postroom.sidecar.adapters.actions import (
    Action,
    End,
    Incoming,
    IncomingTask,
    Malformed,
    Output,
)
from postroom.sidecar.adapters.fields import has_short_ref
from postroom.sidecar.adapters.makers import (
    make_find,
    make_post,
    make_reply,
    make_seen,
    make_send,
    make_status,
)
from postroom.sidecar.adapters.task_makers import (
    TASK_MAKERS,
    make_answer_task,
    make_cancel_task,
    make_delegate,
)

MAKERS: dict[str, Callable[[Mapping[str, Any]], Action]] = {
    "send": make_send,
    "reply": make_reply,
    "post": make_post,
    "seen": make_seen,
    "find": make_find,
    "status": make_status,
    **TASK_MAKERS,
    "delegate": make_delegate,
    "cancel_task": make_cancel_task,
    "answer_task": make_answer_task,
}
"""What an agent can say, by the type of its line."""


class JsonLines:
    """Adapter for programs that speak Postroom's own lines."""

    def feed(self, line: str) -> list[Action]:
        """The action in one line."""
        record = _decode(line)
        if record is None:
            return [Output(line, "no JSON")] if line.strip() else []
        make = MAKERS.get(str(record.get("type")))
        if make is None:
            return [Output(line, "of no known type")]
        try:
            return [make(record)]
        except InvalidInput as error:
            return [Malformed(error.message, record.get("ref") if has_short_ref(record) else None)]

    def skip(self) -> list[Action]:
        """An error that the agent is told."""
        return [Malformed("a line was too long and was skipped")]

    def finish(self, end: End) -> list[Action]:  # noqa: ARG002
        """Nothing: each line stands for itself."""
        return []

    def render(self, message: Incoming) -> bytes:
        """A `message` line, or a `post` line for what came from a feed."""
        record: dict[str, Any] = {"type": "message", **asdict(message)}
        record["from"] = record.pop("sender")
        record["reply_to"] = message.reply_to or None
        if message.to.startswith("#"):
            record = {key: record[key] for key in ("id", "from", "text", "sent_at")}
            record |= {"type": "post", "project": message.to[1:]}
        return self.render_control(record)

    def render_task(self, task: IncomingTask) -> bytes:
        """A `task` line; `history` is in it where more than the request was said."""
        record: dict[str, Any] = {"type": "task", **asdict(task)}
        record["from"] = record.pop("sender")
        record["history"] = [{"role": role, "text": text} for role, text in task.history]
        if not task.history:
            del record["history"]
        return self.render_control(record)

    def render_control(self, record: Mapping[str, Any]) -> bytes:
        """The record as one line of ASCII, so that no reader can trip over an encoding or a line separator."""
        return json.dumps(record, separators=(",", ":")).encode("ascii") + b"\n"


def _decode(line: str) -> dict[str, Any] | None:
    if not line.lstrip().startswith("{"):
        return None
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None
