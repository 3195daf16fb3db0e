"""How a message was delivered, where its recipient says it: by a hook, a queue, a tool.

A receipt has one reason. For `delivered` that is why the recipient does not confirm the message, or how it got it.
"""

from __future__ import annotations

_BY = "by "

OWN_RECEIPTS, CALLER = "Postroom-Receipts", "caller"
"""Header of a request to `/mcp`, and its value: the sender itself says what it has read."""

MESSAGES = "postroom/messages"
"""In the `_meta` of a tool's result: ids of the messages that are in it from beginning to end, for such a sender."""


def as_reason(how: str) -> str:
    """The reason of a receipt that says how a message was delivered; "" for one that does not."""
    return f"{_BY}{how}" if how else ""


def how_of(reason: str) -> str:
    """How a message was delivered, from the reason of its receipt; "" where that is another reason, or none."""
    return reason.removeprefix(_BY) if reason.startswith(_BY) else ""
