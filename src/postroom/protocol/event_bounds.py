"""One event as the log takes it: JSON of bounded size, depth and number of values, whatever the agent printed. Pure.

What is too long is cut, longest texts first, and says so; what still does not fit is given up but for its kind and
the ids that others refer to. So an event is never refused: who reports it could do nothing about it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from postroom.protocol.limits import MAX_DEPTH, MAX_EVENT_BYTES, MAX_LABEL, MAX_VALUES
from postroom_a2a import strict_json
from postroom_a2a.strict_json import TooMuch, check

CUT = "cut"
"""Field of an event that was shortened: true."""

_WIDTHS = (16_384, 4096, 1024, 256)
"""Characters of a text in an event that is too long, tried in this order."""

_LEVELS = MAX_DEPTH - 2
"""Levels of one event: its record adds two."""

_VALUES = MAX_VALUES - 16
"""Values of one event: its record adds a few."""

_KEPT = (
    *(
        "type",
        "request",
        "call",
        "tool",
        "status",
        "decision",
        "default",
        "expires_at",
        "session",
        "channel",
    ),
    *("turn", "task", "message", "input_tokens", "output_tokens", "cost"),
)
"""What is kept of an event that is too large even with short texts."""


def encoded(event: Mapping[str, Any]) -> bytes:
    """`event` as JSON of at most `MAX_EVENT_BYTES` bytes.

    Raises:
        ValueError, TypeError: JSON has no form for it.
    """
    try:
        whole = strict_json.dumps(event)
        check(whole, _LEVELS, _VALUES)
    except (RecursionError, TooMuch):
        pass
    else:
        if len(whole) <= MAX_EVENT_BYTES:
            return whole
        for width in _WIDTHS:
            made = strict_json.dumps({**_shorter(event, width), CUT: True})
            if len(made) <= MAX_EVENT_BYTES:
                return made
    return strict_json.dumps(_least(event))


def _shorter(value: Any, width: int) -> Any:
    """`value` with its texts cut; not called on what is nested deep."""
    if isinstance(value, str):
        return value if len(value) <= width else f"{value[:width]}… [{len(value)} characters]"
    if isinstance(value, Mapping):
        return {key[:width]: _shorter(each, width) for key, each in value.items()}
    if isinstance(value, list):
        return [_shorter(each, width) for each in value]
    return value


def _least(event: Mapping[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for name in _KEPT:
        value = event.get(name)
        if isinstance(value, str):
            kept[name] = value[:MAX_LABEL]
        elif isinstance(value, bool | float) or (isinstance(value, int) and abs(value) < 2**63):
            kept[name] = value
    return kept | {CUT: True}
