"""Alerts: what needs a person, as stored on `system.alerts.<sender>`, and their ends.

{"v": 1, "text": "…", "kind"?: "worker-ended", "about"?: "<what exactly>", "who"?: "<uid>"}
{"v": 1, "ends": "why", "id"?: 17, "kind"?: "…", "about"?: "…", "who"?: "<uid>", "upto"?: 42}

What is raised again while it stands is the same alert: the kind, what it is about and whom make its cause. Only the
post office ends alerts, and only what was stored before.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from postroom.bus.port import MessageBusProvider
from postroom.errors import ProtocolViolation
from postroom.protocol import subjects
from postroom.protocol.records import read_record
from postroom_a2a.text import one_line

MAX_TEXT = 1000
"""Characters of an alert that are kept; it is a line for a person."""


@dataclass(frozen=True, slots=True)
class Alert:
    """One line for a person.

    Attributes:
        text: what is wrong; who it is about is shown before it.
        kind: of the cause.
        about: what exactly, where a kind has several causes at a time.
        who: uid of the agent that it is about, "" for the post room.
    """

    text: str
    kind: str = ""
    about: str = ""
    who: str = ""

    def encode(self) -> bytes:
        """The record's payload."""
        return _encode(self)


@dataclass(frozen=True, slots=True)
class End:
    """The end of those alerts that have all that is given; of all where nothing is.

    Attributes:
        ends: why.
        id: of one alert, 0 for any.
        kind, about, who: as in `Alert`; "" for any.
        upto: only what was not raised after this sequence of ALERTS; 0 for what was stored before this record.
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


def decode(payload: bytes) -> Alert | End:
    """What a payload says; one that is not ours is taken as its own text, for a person to judge."""
    try:
        record = read_record(payload)
    except ProtocolViolation:
        record = {}
    text, ends, kind, about, who = (
        record.get(key, "") for key in ("text", "ends", "kind", "about", "who")
    )
    if not (text or ends) or not all(isinstance(v, str) for v in (text, ends, kind, about, who)):
        return Alert(one_line(payload.decode("utf-8", errors="replace"), MAX_TEXT))
    cause = (one_line(kind, 40), one_line(about, 200), one_line(who, 40))
    if ends:
        return End(one_line(ends, 100), _number(record, "id"), *cause, _number(record, "upto"))
    return Alert(one_line(text, MAX_TEXT), *cause)


async def raise_alert(bus: MessageBusProvider, alert: Alert | End) -> int:
    """Append `alert`, or the end of one, in the name of `bus`'s identity; returns its sequence.

    It carries no de-duplication id: one that an agent could guess, it could use first.
    """
    stored = await bus.publish(subjects.alerts(bus.uid), alert.encode())
    return 0 if stored is None else stored.sequence


def _encode(said: Alert | End) -> bytes:
    return json.dumps(
        {"v": 1} | {key: value for key, value in asdict(said).items() if value}
    ).encode()


def _number(record: dict[str, Any], name: str) -> int:
    value = record.get(name)
    return value if type(value) is int and value > 0 else 0
