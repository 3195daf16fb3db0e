"""Alerts: what needs a person, as it is stored on `system.alerts.<sender>`, and their ends.

{"v": 1, "text": "…", "kind"?: "worker-ended", "about"?: "<what exactly>", "who"?: "<uid>"}
{"v": 1, "ends": "why", "id"?: 17, "kind"?: "…", "about"?: "…", "who"?: "<uid>", "upto"?: 42}

What is raised again while it stands is the same alert: the kind, what it is about and whom make its cause. Only the
post office ends alerts, and only what was stored before.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from typing import Any

from postroom.errors import ProtocolViolation
from postroom.protocol.limits import MAX_ALERT
from postroom.protocol.records import read_record
from postroom_a2a.text import one_line

STALLED = "stalled"
"""Kind of the alert about an agent that says nothing in its turn; it ends when that goes on or ends, and with its
worker's run.
"""


@dataclass(frozen=True, slots=True)
class Alert:
    """One line for a person.

    Attributes:
        kind: of the cause; agents' own alerts may have none.
        text: the fault, without the agent's name, which is shown before it. For `RaiseAlert` an empty text
            means that the cause has gone.
        who: uid of the agent that it is about, "" for the post room.
        about: tells several causes of one kind apart.
    """

    kind: str
    text: str
    who: str = ""
    about: str = ""

    def encode(self) -> bytes:
        """The record's payload."""
        return _encode(self)


RaiseAlert = Callable[[Alert], Awaitable[object]]
"""Raises an alert. An alert without a text ends the alerts of its kind, agent and cause."""


@dataclass(frozen=True, slots=True)
class AlertEnd:
    """Ends the alerts that match every given field; without any, all alerts.

    Attributes:
        id: of one alert, 0 for any.
        upto: the last sequence of ALERTS that it may end; 0 for all that was stored before this record.
    """

    ends: str
    id: int = 0
    kind: str = ""
    about: str = ""
    who: str = ""
    upto: int = 0

    def encode(self) -> bytes:
        """The record's payload."""
        return _encode(self)


def decode(payload: bytes) -> Alert | AlertEnd:
    """The alert or end in a payload; a payload of another form becomes the text of an alert, for a person to judge."""
    try:
        record = read_record(payload)
    except ProtocolViolation:
        record = {}
    said = {key: record.get(key, "") for key in ("text", "ends", "kind", "about", "who")}
    if not (said["text"] or said["ends"]) or not all(isinstance(v, str) for v in said.values()):
        return Alert("", one_line(payload.decode("utf-8", errors="replace"), MAX_ALERT))
    kind, who, about = (
        one_line(said[key], most) for key, most in (("kind", 40), ("who", 40), ("about", 200))
    )
    if said["ends"]:
        why = one_line(said["ends"], 100)
        return AlertEnd(why, _number(record, "id"), kind, about, who, _number(record, "upto"))
    return Alert(kind, one_line(said["text"], MAX_ALERT), who, about)


def _encode(said: Alert | AlertEnd) -> bytes:
    return json.dumps(
        {"v": 1} | {key: value for key, value in asdict(said).items() if value}
    ).encode()


def _number(record: dict[str, Any], name: str) -> int:
    value = record.get(name)
    return value if type(value) is int and value > 0 else 0
