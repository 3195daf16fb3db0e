"""Adapters between an agent program's lines and actions. Pure.

Each run of the agent has an adapter of its own: `feed`, `skip` and `finish` make actions of its output, `render`,
`render_task` and `render_control` make its input (docs/architecture.md, Agent lines).
"""

from __future__ import annotations

from postroom.errors import InvalidInput
from postroom.sidecar.adapters.adapter import (
    Adapter,
    End,
    Heard,
    Incoming,
    IncomingTask,
    MalformedLine,
    Output,
    Said,
    Sender,
    parts_or_text,
    said_in,
)
from postroom.sidecar.adapters.jsonl import JsonLines
from postroom.sidecar.adapters.text import PlainText, run_environment

__all__ = [
    "Adapter",
    "End",
    "Heard",
    "Incoming",
    "IncomingTask",
    "JsonLines",
    "MalformedLine",
    "Output",
    "PlainText",
    "Said",
    "Sender",
    "make_adapter",
    "parts_or_text",
    "run_environment",
    "said_in",
]


def make_adapter(name: str) -> Adapter:
    """The adapter called `name`; raises InvalidInput for another name."""
    match name:
        case "jsonl":
            return JsonLines()
        case "text":
            return PlainText()
    raise InvalidInput(f"there is no adapter {name!r}")
