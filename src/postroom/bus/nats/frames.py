"""NATS frames as messages of the bus."""

from __future__ import annotations

import time
from collections.abc import Mapping

from postroom.bus.acceptance import MSG_ID
from postroom.bus.port import Message
from postroom.protocol.subjects import sender_of
from postroom_a2a.nats.port import Frame


def live_message(frame: Frame) -> Message:
    """The message of a frame that no stream stored."""
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
    """The message of a stored record."""
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
