"""Adapters: what an agent program's lines mean, and how a message looks to it. Pure, no I/O.

An adapter is a class with state, made anew for each start of the agent: `feed(line)`, `skip` and `finish(end)` say
what the agent said, `render`, `render_task` and `render_control` give bytes for its stdin (docs/architecture.md, Agent
lines).
"""

from __future__ import annotations

from postroom.errors import InvalidInput
from postroom.sidecar.adapters.adapter import (
    Adapter,
    End,
    Incoming,
    IncomingTask,
    MalformedLine,
    Output,
    Said,
    Sender,
)
from postroom.sidecar.adapters.jsonl import JsonLines
from postroom.sidecar.adapters.text import PlainText, run_environment

__all__ = [
    "Adapter",
    "End",
    "Incoming",
    "IncomingTask",
    "JsonLines",
    "MalformedLine",
    "Output",
    "PlainText",
    "Said",
    "Sender",
    "make_adapter",
    "run_environment",
]


def make_adapter(name: str) -> Adapter:
    """The adapter called `name`; raises InvalidInput for another name."""
    match name:
        case "jsonl":
            return JsonLines()
        case "text":
            return PlainText()
    raise InvalidInput(f"there is no adapter {name!r}")
