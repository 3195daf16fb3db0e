"""Alerts: what needs a person, as stored on `system.alerts.<sender>`.

{"v": 1, "text": "…", "kind"?: "stale", "about"?: "<sender>/<message id>"}
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from postroom.bus.port import MessageBusProvider
from postroom.errors import ProtocolViolation
from postroom.protocol import subjects
from postroom.protocol.records import read_record
from postroom.protocol.text import one_line

MAX_TEXT = 1000
"""Characters of an alert that are kept; it is a line for a person."""


@dataclass(frozen=True, slots=True)
class Alert:
    """One line for a person; `kind` and `about` say what the post office raised it for."""

    text: str
    kind: str = ""
    about: str = ""

    def encode(self) -> bytes:
        """The record's payload."""
        record = {"v": 1, "text": self.text, "kind": self.kind, "about": self.about}
        return json.dumps({key: value for key, value in record.items() if value}).encode()

    @classmethod
    def decode(cls, payload: bytes) -> Alert:
        """The alert in a payload; one that is not ours is taken as its own text, for a person to judge."""
        try:
            record = read_record(payload)
        except ProtocolViolation:
            record = {}
        text, kind, about = (record.get(key, "") for key in ("text", "kind", "about"))
        if not text or not all(isinstance(value, str) for value in (text, kind, about)):
            return cls(one_line(payload.decode("utf-8", errors="replace"), MAX_TEXT))
        return cls(one_line(text, MAX_TEXT), one_line(kind, 40), one_line(about, 200))


async def raise_alert(bus: MessageBusProvider, alert: Alert) -> None:
    """Append `alert` in the name of `bus`'s identity.

    It carries no de-duplication id: one that an agent could guess, it could use first.
    """
    await bus.publish(subjects.alerts(bus.uid), alert.encode())
