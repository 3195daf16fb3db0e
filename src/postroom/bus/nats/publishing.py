"""Publishing what a stream stores: done when the log said that the record is on disk."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Mapping
from typing import Any

from postroom.bus.acceptance import MSG_ID
from postroom.bus.nats.link import Link, remaining
from postroom.bus.nats.replies import Answer, Replies
from postroom.bus.port import Stored
from postroom.errors import (
    NoResponders,
    ProtocolViolation,
)
from postroom.protocol.subjects import JETSTREAM
from postroom_a2a.nats.jetstream_errors import TEMPORARY, refusal


async def publish_stored(
    link: Link,
    replies: Replies,
    subject: str,
    payload: bytes,
    headers: Mapping[str, str],
    deadline: float,
) -> Stored:
    """Publish, and wait for the log's word; over a broken connection again, if a de-duplication id is given.

    Raises:
        As `MessageBusProvider.publish`.
    """
    repeat = MSG_ID in headers
    pause, first = 0.02, True
    while True:
        answer = await replies.ask(
            subject, payload, answerer=JETSTREAM, deadline=deadline, headers=headers, repeat=repeat
        )
        document = {} if answer.no_responders else _document(answer)
        error = document.get("error")
        unready = answer.no_responders or (error or {}).get("err_code") in TEMPORARY
        if unready and link.recovering and (left := remaining(deadline)):
            await asyncio.sleep(min(left, pause * random.uniform(0.5, 1.5)))  # noqa: S311
            pause, first = min(pause * 2, 0.5), False
            continue
        if answer.no_responders:
            raise NoResponders(f"no stream stores {subject!r}")
        if error:
            raise refusal(error, f"{subject!r} was not stored")
        return _stored(document, first=first and answer.attempt == 1)


def _document(answer: Answer) -> dict[str, Any]:
    try:
        document = json.loads(answer.frame.data)
    except ValueError as error:
        raise ProtocolViolation("the log's answer is not JSON") from error
    if not isinstance(document, dict):
        raise ProtocolViolation("the log's answer is no JSON object")
    return document


def _stored(document: Mapping[str, Any], *, first: bool) -> Stored:
    """The PubAck. After a repetition a duplicate is our own first attempt, not someone else's record."""
    try:
        stream, sequence = str(document["stream"]), int(document["seq"])
    except (KeyError, TypeError, ValueError) as error:
        raise ProtocolViolation("the log's answer is no PubAck") from error
    return Stored(stream, sequence, duplicate=first and document.get("duplicate") is True)
