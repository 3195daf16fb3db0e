"""Single records of a stream: by their sequence, or the last one of a subject."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from postroom_a2a.errors import NotFound, ProtocolViolation, RequestTimeout
from postroom_a2a.nats.frame import read_headers
from postroom_a2a.nats.jetstream import JetStream

DIRECT_TIMEOUT = 2.0
"""Seconds for a direct get; after them `last_record` asks the stream's leader."""


class Record(NamedTuple):
    """One message of a stream.

    Attributes:
        stored_at: seconds since the epoch; 0 for a direct get, whose answer has the time in a header.
        pending: records that the consumer has after this one.
    """

    subject: str
    payload: bytes
    headers: Mapping[str, str]
    sequence: int
    stored_at: float = 0.0
    pending: int = 0


async def get_record(js: JetStream, stream: str, sequence: int) -> Record:
    """The record at `sequence`, from the stream's leader.

    Raises:
        NotFound: the stream has no record there (any more).
        As `JetStream.api`.
    """
    return _read(await js.api(f"STREAM.MSG.GET.{stream}", {"seq": sequence}))


async def last_record(
    js: JetStream, stream: str, subject: str, *, direct: bool = True
) -> Record | None:
    """The last record of `subject` in `stream`, or None.

    Args:
        subject: must not have wildcards where `direct` is set.
        direct: let any replica answer (ADR-31); it may be a moment behind the leader.

    Raises:
        As `JetStream.api`.
    """
    if direct:
        target = f"{js.prefix}.DIRECT.GET.{stream}.{subject}"
        try:
            frame = await js.mailbox.ask(target, b"", timeout=DIRECT_TIMEOUT)
        except RequestTimeout:
            headers = {}
        else:
            headers = dict(frame.headers or {})
            if "Nats-Sequence" in headers:
                return Record(subject, frame.data, headers, int(headers["Nats-Sequence"]))
        if headers.get("Status") == "404":
            return None
        # Nobody answers direct gets (just now); the leader answers, or says why not.
    try:
        return _read(await js.api(f"STREAM.MSG.GET.{stream}", {"last_by_subj": subject}))
    except NotFound:
        return None


def _read(answer: Mapping[str, Any]) -> Record:
    try:
        message = answer["message"]
        return Record(
            subject=str(message["subject"]),
            payload=base64.b64decode(message.get("data") or ""),
            headers=read_headers(base64.b64decode(message.get("hdrs") or "")),
            sequence=int(message["seq"]),
            stored_at=datetime.fromisoformat(message["time"]).timestamp(),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ProtocolViolation("JetStream's answer to a get is not a message") from error
