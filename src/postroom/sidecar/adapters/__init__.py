"""Adapters: what an agent program's lines mean, and how a message looks to it. Pure, no I/O.

An adapter is a class with state, made anew for each start of the agent: `feed(line)`, `skip` and `finish(end)` give
actions, `render`, `render_task` and `render_control` give bytes for its stdin (docs/architecture.md, Agent lines).
"""

from __future__ import annotations

from postroom.errors import InvalidInput
from postroom.sidecar.adapters.actions import (
    Action,
    Adapter,
    AnswerTask,
    Artifact,
    AskInput,
    Canceled,
    CancelTask,
    Complete,
    Delegate,
    Delegated,
    End,
    Fail,
    Find,
    Incoming,
    IncomingTask,
    Malformed,
    Output,
    Post,
    Progress,
    Reject,
    Reply,
    Seen,
    Send,
    Sender,
    SetStatus,
    TaskAction,
)
from postroom.sidecar.adapters.jsonl import JsonLines
from postroom.sidecar.adapters.text import PlainText, run_environment

__all__ = [
    "Action",
    "Adapter",
    "AnswerTask",
    "Artifact",
    "AskInput",
    "CancelTask",
    "Canceled",
    "Complete",
    "Delegate",
    "Delegated",
    "End",
    "Fail",
    "Find",
    "Incoming",
    "IncomingTask",
    "JsonLines",
    "Malformed",
    "Output",
    "PlainText",
    "Post",
    "Progress",
    "Reject",
    "Reply",
    "Seen",
    "Send",
    "Sender",
    "SetStatus",
    "TaskAction",
    "make_adapter",
    "run_environment",
]


def make_adapter(name: str) -> Adapter:
    """The adapter called `name`.

    Raises:
        InvalidInput: there is none.
    """
    match name:
        case "jsonl":
            return JsonLines()
        case "text":
            return PlainText()
    raise InvalidInput(f"there is no adapter {name!r}")
