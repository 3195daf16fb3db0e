"""What a NATS frame says: statuses and messages."""

from __future__ import annotations

import time

from nats.aio.msg import Msg

from postroom.bus.acceptance import MSG_ID
from postroom.bus.port import Message
from postroom.protocol.subjects import sender_of
from postroom_a2a.nats.records import Record

NO_RESPONDERS = "503"


def status_of(frame: Msg) -> tuple[str, str]:
    """Status and description of a frame that JetStream or the server made, ("", "") for any other.

    Only a frame without reply subject can be one: a publisher can store a message that carries the header.
    """
    if frame.reply or frame.data or not frame.headers:
        return "", ""
    # Where a status has no description, nats-py takes the header after it for one.
    description = frame.headers.get("Description", "").partition("\n")[0]
    return frame.headers.get("Status", ""), description.strip()


def live_message(frame: Msg) -> Message:
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
