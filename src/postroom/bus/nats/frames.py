"""What a NATS frame says, as a message of the bus."""

from __future__ import annotations

import time

from postroom.bus.acceptance import MSG_ID
from postroom.bus.port import Message
from postroom.protocol.subjects import sender_of
from postroom_a2a.nats.port import Frame
from postroom_a2a.nats.records import Record


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


def message_of(record: Record) -> Message:
    """A record of a stream."""
    headers = record.headers
    return Message(
        id=headers.get(MSG_ID, ""),
        sender_uid=sender_of(record.subject),
        subject=record.subject,
        payload=record.payload,
        metadata=dict(headers),
        timestamp=record.stored_at,
        sequence=record.sequence,
    )
