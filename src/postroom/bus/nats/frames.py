"""What a NATS frame says: statuses, deliveries, messages."""

from __future__ import annotations

import time
from dataclasses import dataclass

from postroom.bus.acceptance import MSG_ID
from postroom.bus.port import Message
from postroom.protocol.subjects import sender_of
from postroom_a2a.nats.port import Frame

NO_RESPONDERS = "503"

_ACK_TOKENS = 9


@dataclass(frozen=True, slots=True)
class AckSubject:
    """What the reply subject of a delivery says about it.

    `$JS.ACK.<stream>.<consumer>.<attempt>.<sequence>.<consumer sequence>.<nanoseconds>.<pending>`
    """

    stream: str
    consumer: str
    attempt: int
    sequence: int
    timestamp: float
    pending: int


def parse_ack_subject(reply: str) -> AckSubject | None:
    """What `reply` says, None if it is no acknowledgement subject."""
    tokens = reply.split(".")
    numbers = tokens[4:]
    if len(tokens) != _ACK_TOKENS or tokens[:2] != ["$JS", "ACK"]:
        return None
    if not all(number.isascii() and number.isdigit() for number in numbers):
        return None
    attempt, sequence, _, nanoseconds, pending = map(int, numbers)
    return AckSubject(tokens[2], tokens[3], attempt, sequence, nanoseconds / 1e9, pending)


def status_of(frame: Frame) -> tuple[str, str]:
    """Status and description of a frame that JetStream or the server made, ("", "") for any other.

    Only a frame without reply subject can be one: a publisher can store a message that carries the header.
    """
    if frame.reply or frame.data or not frame.headers:
        return "", ""
    # Where a status has no description, nats-py takes the header after it for one.
    description = frame.headers.get("Description", "").partition("\n")[0]
    return frame.headers.get("Status", ""), description.strip()


def live_message(frame: Frame) -> Message:
    """A frame that nobody stored."""
    headers = dict(frame.headers or {})
    return Message(
        id=headers.get(MSG_ID, ""),
        sender_uid=sender_of(frame.subject),
        subject=frame.subject,
        payload=frame.data,
        metadata=headers,
        timestamp=time.time(),
        reply_to=frame.reply,
    )


def stored_message(frame: Frame, ack: AckSubject) -> Message:
    """A frame that a consumer delivered."""
    headers = dict(frame.headers or {})
    return Message(
        id=headers.get(MSG_ID, ""),
        sender_uid=sender_of(frame.subject),
        subject=frame.subject,
        payload=frame.data,
        metadata=headers,
        timestamp=ack.timestamp,
        sequence=ack.sequence,
    )
