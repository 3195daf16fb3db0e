"""Jobs, the stored requests in a server: reading, checking, the frames of the answer, and claims (docs/binding.md).

A claim is stored before a request is begun, so that no second process begins it: one record of a KV bucket, made only
if none exists. It holds the subject on which its owner answers about the request. An unreachable owner is gone, and its
request is lost.
"""

from __future__ import annotations

import asyncio
import base64
import json
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from hashlib import sha1
from typing import NamedTuple

from postroom_a2a.binding.frames import (
    BINARY,
    BadRequest,
    deadline_of,
    decode_request,
    encode_complete,
    encode_error,
    encode_result,
    encode_stream_frame,
)
from postroom_a2a.binding.subjects import check_subject, may_publish_to
from postroom_a2a.ecma_json import loads
from postroom_a2a.errors import (
    BusDisconnected,
    InvalidInput,
    LostUpdate,
    NoResponders,
    NotFound,
    PostroomError,
    RequestTimeout,
)
from postroom_a2a.nats.acks import AckSubject, Place
from postroom_a2a.nats.jetstream import LAST_SUBJECT_SEQUENCE, JetStream, covers
from postroom_a2a.nats.port import NO_RESPONDERS, Frame, status_of
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


# ── claims ────────────────────────────────────────────────────────────────────────────────────────


DONE_KEPT = 65_536
"""Done requests that a process remembers: after a kill, nats-server delivers the latest ones again."""

ASK_TIMEOUT = 2.0
"""Seconds for an owner's answer."""


class Claim(Enum):
    """The result of an attempt to claim a request."""

    OURS = "ours"
    """This process alone may begin it."""

    HELD = "held"
    """Another process works on it."""

    DONE = "done"
    """Another process has answered it."""

    SILENT = "silent"
    """Another process began it, is connected, and does not answer."""

    LOST = "lost"
    """Another process began it and is gone."""


_SAID = {b"held": Claim.HELD, b"done": Claim.DONE}


class Claims:
    """The claims of one server.

    Args:
        held: whether this process works on the request of a key.
        grace: seconds that an unreachable owner gets to return to a restarted NATS server.
    """

    def __init__(
        self, js: JetStream, bucket: str, held: Callable[[str], bool], *, grace: float
    ) -> None:
        self._js = js
        self._bucket = bucket
        self._held = held
        self._grace = grace
        self._done: OrderedDict[str, None] = OrderedDict()
        self._doubtful: OrderedDict[str, bool] = OrderedDict()
        self._address = ""

    async def open(self) -> None:
        """Begin to answer other processes about our claims."""
        await self._js.mailbox.open()
        self._address = self._js.mailbox.token(self._asked)
        self._answering: set[asyncio.Task[None]] = set()

    def close(self) -> None:
        """Answer no more."""
        self._js.mailbox.forget(self._address)

    def done(self, place: Place) -> None:
        """Remember that the request was answered."""
        self._done[place.key] = None
        if len(self._done) > DONE_KEPT:
            self._done.popitem(last=False)

    def is_done(self, place: Place) -> bool:
        """Whether this process remembers the request as answered."""
        return place.key in self._done

    async def take(self, place: Place) -> Claim:
        """Claim a request; returns when the claim is stored, or another process's was found.

        Raises:
            NoResponders, Refused: the bucket takes nothing.
            BusDisconnected, RequestTimeout: JetStream does not answer; the request must not be begun.
        """
        subject = f"$KV.{self._bucket}.{place.key}"
        body = f'{{"owner":"{self._address}","at":{int(time.time() * 1000)}}}'.encode()
        try:
            await self._js.publish(subject, body, headers={LAST_SUBJECT_SEQUENCE: "0"})
        except LostUpdate:
            owner = await self._owner(subject)
            if owner is None:
                raise
            if owner != self._address:
                return await self._ask(owner, place)
            # An earlier claim of ours: answered and forgotten, unless we do not know whether it was stored.
            return Claim.OURS if self._doubtful.pop(place.key, False) else Claim.DONE
        except (RequestTimeout, BusDisconnected):
            # The claim may be stored all the same, now or later.
            self._doubtful[place.key] = True
            if len(self._doubtful) > DONE_KEPT:
                self._doubtful.popitem(last=False)
            owner = await self._owner(subject)
            if owner is None:
                raise
            if owner != self._address:
                return await self._ask(owner, place)
        self._doubtful.pop(place.key, None)
        return Claim.OURS

    async def look(self, place: Place) -> Claim | None:
        """The claim on a request that this call does not claim; None if no process did.

        Raises:
            PostroomError: JetStream does not answer.
        """
        owner = await self._owner(f"$KV.{self._bucket}.{place.key}")
        if owner is None:
            return None
        return Claim.DONE if owner == self._address else await self._ask(owner, place)

    async def _owner(self, subject: str) -> str | None:
        """The owner of the claim; None without a claim."""
        try:
            answer = await self._js.api(
                f"STREAM.MSG.GET.KV_{self._bucket}", {"last_by_subj": subject}
            )
        except NotFound:
            return None
        try:
            owner = json.loads(base64.b64decode(answer["message"]["data"]))["owner"]
        except (KeyError, TypeError, ValueError):
            return ""  # an unreadable record is a claim all the same
        return owner if isinstance(owner, str) else ""

    async def _ask(self, owner: str, place: Place) -> Claim:
        """The owner's answer about its claim."""
        loop = asyncio.get_running_loop()
        give_up = loop.time() + self._grace
        while True:
            try:
                frame = await self._js.mailbox.ask(owner, place.key.encode(), timeout=ASK_TIMEOUT)
            except RequestTimeout:
                return Claim.SILENT
            except InvalidInput:
                return Claim.LOST  # the claim names no usable subject
            if status_of(frame) != NO_RESPONDERS:
                return _SAID.get(frame.data, Claim.LOST)
            if loop.time() >= give_up:
                return Claim.LOST
            # After a restart of the NATS server its clients return one after the other.
            await asyncio.sleep(min(0.5, self._grace / 4))

    def _asked(self, frame: Frame) -> None:
        """Answer another process that found our claim."""
        key = frame.data.decode(errors="replace")
        said = b"held" if self._held(key) else b"done" if key in self._done else b""
        if frame.reply and may_publish_to(frame.reply):
            task = asyncio.get_running_loop().create_task(
                self._answer(frame.reply, said or b"lost")
            )
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)

    async def _answer(self, reply: str, said: bytes) -> None:
        try:
            await self._js.mailbox.send(reply, said)
        except (PostroomError, NoResponders):
            return  # without an answer the other process asks again
