"""The subject on which a delivery is acknowledged, what it says, and the words of the answers (ADR-15)."""

from __future__ import annotations

import json
from typing import NamedTuple

from postroom_a2a.text import one_line

ACK = b"+ACK"
WORKING = b"+WPI"


class Place(NamedTuple):
    """Where a message lies in its stream.

    Attributes:
        stamp: nanoseconds since the epoch at which it was stored. A stream that was deleted and made again counts
            from 1 again, so the sequence alone does not name a message.
        key: all three, as the end of a subject.
    """

    stream: str
    sequence: int
    stamp: int
    key: str


class AckSubject(NamedTuple):
    """What the reply subject of a delivery says.

    `$JS.ACK.<stream>.<consumer>.<attempt>.<sequence>.<number>.<nanoseconds>.<pending>`; servers that use the longer
    form name domain and account before the stream, and end with a random token.

    Attributes:
        attempt: 1 for the first delivery.
        number: of the delivery in its consumer: 1, 2, 3, ...
        pending: messages that wait behind it.
    """

    place: Place
    consumer: str
    attempt: int
    number: int
    pending: int


def parse_ack_subject(reply: str) -> AckSubject | None:
    """What `reply` says; None if it does not acknowledge anything."""
    if not reply.startswith("$JS.ACK."):
        return None
    tokens = reply.split(".")
    if len(tokens) >= 11:
        del tokens[2:4]
    elif len(tokens) != 9:
        return None
    numbers = tokens[4:9]
    for number in numbers:
        if not (number.isascii() and number.isdigit()):
            return None
    attempt, sequence, number, stamp, pending = map(int, numbers)
    stream = tokens[2]
    place = Place(stream, sequence, stamp, f"{stream}.{sequence}.{stamp}")
    return AckSubject(place, tokens[3], attempt, number, pending)


def give_back(delay: float = 0.0) -> bytes:
    """The word that has a message delivered again, after `delay` seconds."""
    return b"-NAK " + json.dumps({"delay": int(delay * 1e9)}).encode() if delay > 0 else b"-NAK"


def give_up(reason: str) -> bytes:
    """The word that has a message never delivered again; the reason, cut to one line, is told in an advisory."""
    return f"+TERM {one_line(reason, 300)}".rstrip().encode()
