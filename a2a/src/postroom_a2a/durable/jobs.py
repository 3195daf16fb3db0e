"""Jobs, the stored requests in a server: reading, checking, and the frames of the answer. Pure."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha1
from typing import NamedTuple

from postroom_a2a.binding.frames import (
    BINARY,
    BadRequest,
    decode_request,
    encode_complete,
    encode_error,
    encode_result,
    encode_stream_frame,
)
from postroom_a2a.binding.headers import deadline_of
from postroom_a2a.binding.subjects import check_subject
from postroom_a2a.ecma_json import loads
from postroom_a2a.errors import InvalidInput, PostroomError
from postroom_a2a.nats.acks import AckSubject, Place
from postroom_a2a.nats.jetstream import covers
from postroom_a2a.nats.port import Frame
from postroom_a2a.operations import Call, Operations
from postroom_a2a.rpc import Code, RpcError

_TASKS = uuid.UUID("3f0d8f0a-4a0e-5c6b-9a53-5d2c1f6f2a11")


class Rejected(PostroomError):
    """A request that gets no answer; the text is the reason, for the log."""

    code = "rejected"


class RequestDelivery(NamedTuple):
    """One delivery of a request by a durable."""

    frame: Frame
    ack: AckSubject

    @property
    def reply(self) -> str:
        """The subject for its acknowledgement."""
        return self.frame.reply

    @property
    def place(self) -> Place:
        """The request's place in its stream."""
        return self.ack.place

    @property
    def attempt(self) -> int:
        """1 for the first delivery."""
        return self.ack.attempt


@dataclass(slots=True)
class Job:
    """A request that this server holds.

    Attributes:
        streams: whether the answer is a stream.
        begins: whether it may begin work.
        error: the answer in place of performing it.
        late: why this server must not begin it any more, "" if it may. Another process may have begun it before.
        begun: whether it was claimed or performed.
        answered: whether its answer is stored.
        finished: whether it has freed its slot.
    """

    delivery: RequestDelivery
    call: Call
    response_subject: str
    streams: bool = False
    begins: bool = False
    error: RpcError | None = None
    late: str = ""
    begun: bool = False
    answered: bool = False
    finished: bool = False
    task: asyncio.Task[None] | None = None

    @property
    def place(self) -> Place:
        """The request's place in its stream."""
        return self.delivery.place

    def result(self, result: bytes) -> bytes:
        """The frame of a result."""
        call = self.call
        response = encode_result(call.id, result, binary=call.binary)
        return encode_stream_frame(response, binary=call.binary)

    def refusal(self, error: RpcError) -> bytes:
        """The frame of an error."""
        call = self.call
        response = encode_error(call.id, error, binary=call.binary)
        return encode_stream_frame(response, binary=call.binary)

    def complete(self) -> bytes:
        """The last frame of a stream."""
        return encode_complete(self.call.id, binary=self.call.binary)


def read_job(
    delivery: RequestDelivery,
    operations: Operations,
    *,
    check: Callable[[str], None],
    abandon_after: float,
    caller: str,
    now: float,
) -> Job:
    """The job in a delivery.

    Args:
        check: raises `Rejected` for a subject that is not permitted for answers.
        abandon_after: seconds after which a request without a deadline counts as abandoned.

    Raises:
        Rejected: it may not be performed, and has no subject for that answer.
    """
    frame, place = delivery.frame, delivery.place
    try:
        request = decode_request(frame.data)
    except BadRequest as bad:
        subject = _response_subject(frame.data)
        check(subject)
        return Job(delivery, Call(bad.id, "", binary=bad.binary), subject, error=bad.error)
    check(request.response_subject)
    deadline = request.deadline or (deadline_of(frame.headers) if frame.headers else 0.0)
    late = now - (deadline or place.stamp / 1e9 + abandon_after)
    expired = f"the request expired {late:.1f} s ago" if late > 0 else ""
    method = request.method
    begins, streams = operations.begins(method), operations.streams(method)
    if expired and not begins:
        raise Rejected(expired)
    # A deadline limits the wait for the first frame of a stream, not the stream.
    call = request.call(caller, 0.0 if streams else deadline)
    if begins:
        call.task_id = task_id_of(place)
    return Job(delivery, call, request.response_subject, streams, begins, late=expired)


def task_id_of(place: Place) -> str:
    """The id of the task that a request begins: the same for each delivery of it."""
    # The same as `uuid.uuid5`, at a fraction of its cost.
    digest = sha1(_TASKS.bytes + place.key.encode(), usedforsecurity=False).hexdigest()
    variant = "89ab"[int(digest[16], 16) & 3]
    return f"{digest[:8]}-{digest[8:12]}-5{digest[13:16]}-{variant}{digest[17:20]}-{digest[20:32]}"


def check_response_subject(subject: str, patterns: Sequence[str]) -> None:
    """Refuse any subject but one for answers: a caller must not have an answer stored in a bucket or as a request.

    Raises:
        Rejected: the subject is not for answers.
    """
    if not subject:
        raise Rejected("the request names no response subject")
    try:
        check_subject(subject)
    except InvalidInput:
        raise Rejected("the response subject is malformed") from None
    if not any(covers(pattern, subject) for pattern in patterns):
        raise Rejected(f"the response subject {subject[:100]} is not for answers")


def lost_error(call: Call) -> RpcError:
    """The answer to a request that a process began and did not end."""
    return RpcError(
        Code.INTERNAL_ERROR,
        "the server ended while it worked on this request; it was not begun again",
        taskId=call.task_id,
    )


def _response_subject(payload: bytes) -> str:
    """The response subject in a payload that is not a request; "" for none."""
    text = payload[1:].partition(b"\n")[0] if payload.startswith(BINARY) else payload
    try:
        value = loads(text)
    except ValueError:
        return ""
    subject = value.get("responseSubject") if isinstance(value, dict) else None
    return subject if isinstance(subject, str) else ""
