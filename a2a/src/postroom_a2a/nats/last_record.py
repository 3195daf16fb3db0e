"""The last record of a subject, from any replica (ADR-31) or from the stream's leader."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass

from postroom_a2a.errors import NotFound, ProtocolViolation, RequestTimeout
from postroom_a2a.nats.jetstream import JetStream

DIRECT_TIMEOUT = 2.0
"""Seconds for a direct get before the stream's leader is asked."""


@dataclass(frozen=True, slots=True)
class Record:
    """One message of a stream.

    Attributes:
        subject: it is stored under.
        payload: bytes.
        headers: NATS headers.
        sequence: in the stream.
        pending: how many the consumer that gave it has after this one.
    """

    subject: str
    payload: bytes
    headers: Mapping[str, str]
    sequence: int
    pending: int = 0


async def last_record(
    js: JetStream, stream: str, subject: str, *, direct: bool = True
) -> Record | None:
    """The last record of `subject` in `stream`; None where there is none.

    Args:
        js: JetStream.
        stream: name of it.
        subject: without wildcards.
        direct: any replica may answer; it may be a moment behind the leader.

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
        # Nobody answers direct gets (just now): the leader does, or says why not.
    try:
        message = (await js.api(f"STREAM.MSG.GET.{stream}", {"last_by_subj": subject}))["message"]
        payload = base64.b64decode(message.get("data") or "")
        headers = _headers(base64.b64decode(message.get("hdrs") or ""))
        return Record(subject, payload, headers, int(message["seq"]))
    except NotFound:
        return None
    except (KeyError, TypeError, ValueError) as error:
        raise ProtocolViolation("the answer to a get is no message") from error


def _headers(block: bytes) -> dict[str, str]:
    """Headers as the API gives them: a version line, then one a line."""
    lines = block.decode("utf-8", "replace").split("\r\n")[1:]
    return {name: value.strip() for name, mark, value in (x.partition(":") for x in lines) if mark}
