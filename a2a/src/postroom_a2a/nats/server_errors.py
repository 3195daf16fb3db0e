"""The `-ERR` lines of a NATS server, as our errors. Pure."""

from __future__ import annotations

import re

from postroom_a2a.errors import (
    BusDisconnected,
    Forbidden,
    InvalidInput,
    MessageTooLarge,
    PostroomError,
    ProtocolViolation,
    Refused,
    Unauthorized,
)

_DENIED = re.compile(
    r'permissions violation for (publish|subscription) to "([^"]*)"', re.IGNORECASE
)

_KINDS: tuple[tuple[str, type[PostroomError]], ...] = (
    ("authorization", Unauthorized),
    ("authentication", Unauthorized),
    ("permissions violation", Forbidden),
    ("maximum payload", MessageTooLarge),
    ("invalid publish subject", InvalidInput),
    ("invalid subject", InvalidInput),
    ("maximum subscriptions", Refused),
    ("unknown protocol", ProtocolViolation),
    ("parser error", ProtocolViolation),
    ("invalid client protocol", ProtocolViolation),
    ("maximum control line", ProtocolViolation),
)


class Denied(Forbidden):
    """This identity may not publish or subscribe there; `verb` is "publish" or "subscription"."""

    def __init__(self, verb: str, subject: str) -> None:
        super().__init__(f"this identity may not use {subject!r} for a {verb}")
        self.verb = verb
        self.subject = subject


def refusal_of(line: bytes) -> PostroomError:
    """The error that an `-ERR` line reports, given the line without its verb."""
    text = line.decode("utf-8", "surrogateescape").strip().strip("'")
    if found := _DENIED.search(text):
        return Denied(found[1].lower(), found[2])
    lower = text.lower()
    for words, kind in _KINDS:
        if words in lower:
            return kind(f"the NATS server says: {text}")
    return BusDisconnected(f"the NATS server says: {text}")
