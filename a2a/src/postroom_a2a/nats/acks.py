"""Acknowledgements of deliveries: their subject, its fields, and the payloads (ADR-15)."""

from __future__ import annotations

import json
import re
from typing import NamedTuple

from postroom_a2a.text import one_line

ACK = b"+ACK"
WORKING = b"+WPI"


_FIELDS = r"([^.]*)\.([^.]*)\.([0-9]+)\.([0-9]+)\.([0-9]+)\.([0-9]+)\.([0-9]+)"
_SHORT = re.compile(rf"\$JS\.ACK\.{_FIELDS}")
_LONG = re.compile(rf"\$JS\.ACK\.[^.]*\.[^.]*\.{_FIELDS}(?:\.[^.]*)*")


class Place(NamedTuple):
    """The place of a message in its stream.

    Attributes:
        stamp: nanoseconds since the epoch at which the server stored it. A stream that was deleted and made again
            counts from 1 again, so the sequence alone does not identify a message.
        key: all three, as the end of a subject.
    """

    stream: str
    sequence: int
    stamp: int
    key: str


class AckSubject(NamedTuple):
    """The fields of a delivery's reply subject.

    `$JS.ACK.<stream>.<consumer>.<attempt>.<sequence>.<number>.<nanoseconds>.<pending>`; the longer
    form has domain and account before the stream, and a random token at the end.

    Attributes:
        attempt: 1 for the first delivery.
        number: counts the deliveries of the consumer: 1, 2, 3, ...
        pending: messages that wait behind this one.
    """

    place: Place
    consumer: str
    attempt: int
    number: int
    pending: int


def parse_ack_subject(reply: str) -> AckSubject | None:
    """The fields of `reply`; None if it is not the reply subject of a delivery."""
    found = _SHORT.fullmatch(reply) or _LONG.fullmatch(reply)
    if found is None:
        return None
    stream, consumer, attempt, sequence, number, stamp, pending = found.groups()
    place = Place(stream, int(sequence), int(stamp), f"{stream}.{int(sequence)}.{int(stamp)}")
    return AckSubject(place, consumer, int(attempt), int(number), int(pending))


def give_back(delay: float = 0.0) -> bytes:
    """The payload that asks for another delivery of a message, after `delay` seconds."""
    return b"-NAK " + json.dumps({"delay": int(delay * 1e9)}).encode() if delay > 0 else b"-NAK"


def give_up(reason: str) -> bytes:
    """The payload that ends the delivery of a message; an advisory of the server carries the reason, cut to a line."""
    return f"+TERM {one_line(reason, 300)}".rstrip().encode()
