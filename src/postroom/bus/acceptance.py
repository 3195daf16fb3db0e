"""Which frames a receiver believes, and which subjects a sender may name: rules of both implementations of the bus.

A publisher may name any reply subject, so receivers check the subject of a frame and its reply subject
(docs/architecture.md, The bus).
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from postroom.errors import InvalidInput, PostroomError, problem
from postroom.protocol import subjects
from postroom.protocol.ids import CONTROL_PLANE
from postroom.protocol.streams import stream_of

MSG_ID = "Nats-Msg-Id"
"""Header of the de-duplication id."""

_HEADER_NAME = frozenset(
    "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
)


def stored_in(subject: str) -> str:
    """Name of the stream that stores `subject`, "" without one.

    Raises:
        InvalidInput: `subject` is not in the table of subjects.
    """
    return stream_of(subject)


def answerer_of(subject: str) -> str:
    """The token of the peer that will answer a request on `subject`.

    Raises:
        InvalidInput: a stream stores it, so the log would answer and not the peer.
    """
    if subject.startswith("$"):
        return subjects.JETSTREAM
    said = subjects.parse(subject)
    if said.kind == "ctl":
        return subjects.CONTROL
    if said.kind != "rpc":
        raise InvalidInput(
            f"no peer answers requests on {subject!r}: only rpc and ctl take requests"
        )
    return said.recipient


def accepts_pulled(
    own: str, stream: str, durable: str, projects: tuple[str, ...], subject: str, reply_to: str
) -> bool:
    """Whether a frame in a pull's inbox is a delivery by consumer `durable`.

    An agent's consumers carry its uid; the control plane has the core account for itself and reads everything.
    """
    if own == CONTROL_PLANE:
        return reply_to.startswith(f"$JS.ACK.{stream}.{durable}.")
    return durable == own and subjects.accepts_delivery(stream, own, projects, subject, reply_to)


def accepts_request(own: str, subject: str, reply_to: str) -> bool:
    """Whether to answer a request: its reply subject must lead to the sender and to nobody else.

    Requests on `ctl` come through the import of the core account, which replaces the sender's reply subject by one of
    its own, so there any will do.
    """
    if not reply_to:
        return False
    try:
        kind = subjects.parse(subject).kind
    except InvalidInput:
        return False
    if kind == "ctl":
        return own == CONTROL_PLANE
    return subjects.accepts_rpc(own, subject, reply_to)


def accepts_published(subject: str, reply_to: str) -> bool:
    """Whether a live message counts: an announcement only with the reply that proves its sender."""
    if subject.startswith("system.discovery."):
        return subjects.accepts_announcement(subject, reply_to)
    return True


def headers_of(metadata: Mapping[str, str] | None, message_id: str) -> dict[str, str]:
    """Headers of a message.

    Raises:
        InvalidInput: a name or a value would break out of its line.
    """
    headers = dict(metadata or {})
    for name, value in headers.items():
        if not name or not set(name) <= _HEADER_NAME or not value.isprintable():
            raise InvalidInput(f"{name!r} is not a header, or its value is not one printable line")
    if message_id:
        headers[MSG_ID] = message_id
    return headers


def error_answer(error: PostroomError) -> bytes:
    """The payload that answers a request that failed."""
    return json.dumps({"error": problem(error)}).encode()
