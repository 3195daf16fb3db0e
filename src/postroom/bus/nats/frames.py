"""What a NATS frame says: statuses and messages."""

from __future__ import annotations

import time
from collections.abc import Mapping

from nats.aio.msg import Msg

from postroom.bus.acceptance import MSG_ID
from postroom.bus.port import Message
from postroom.protocol.subjects import sender_of

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


def stored_message(
    subject: str,
    payload: bytes,
    headers: Mapping[str, str] | None,
    sequence: int,
    stored_at: float,
) -> Message:
    """A record of a stream."""
    metadata = dict(headers or {})
    return Message(
        metadata.get(MSG_ID, ""),
        sender_of(subject),
        subject,
        payload,
        metadata,
        stored_at,
        sequence,
    )
