"""The records of a stream in order and without gaps, from a push consumer that lives as long as its reader (ADR-17).

A gap or a silence breaks an `OrderedConsumer` with `StreamBroken`, and its owner decides where to begin with the next.
`read_stream` goes on where it was, and ends where the stream ended at the beginning.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from postroom_a2a.errors import (
    BusDisconnected,
    NoResponders,
    NotFound,
    ProtocolViolation,
    RequestTimeout,
    StreamBroken,
)
from postroom_a2a.nats.acks import parse_ack_subject
from postroom_a2a.nats.jetstream import JetStream
from postroom_a2a.nats.mailbox import FrameQueue
from postroom_a2a.nats.port import FAULTS, Frame, Subscription
from postroom_a2a.nats.records import Record

HEARTBEAT = 5.0
"""Seconds between the server's heartbeats while there is nothing new."""

_UNREAD = 65_536
_UNREAD_SIZE = 64 * 1024 * 1024
"""Frames and bytes that may lie unread; the server's flow control stops it earlier."""

_INACTIVE = 30.0

_ATTEMPTS = 5
"""Times in a row that `read_stream` may break without a record in between."""


class OrderedConsumer:
    """A consumer for one reader; an async context manager.

    Args:
        subjects: filters, which may have wildcards; () for every record.
        heartbeat: seconds between the server's heartbeats in silence; three missing ones break the consumer.
        config: further members of the consumer's configuration, such as `deliver_policy` or `headers_only`.

    Attributes:
        pending: number of records that there were when it began.
    """

    def __init__(
        self,
        js: JetStream,
        stream: str,
        subjects: str | Sequence[str],
        *,
        heartbeat: float = HEARTBEAT,
        **config: Any,
    ) -> None:
        self.pending = 0
        self._js = js
        self._stream = stream
        self._subjects = (subjects,) if isinstance(subjects, str) else tuple(subjects)
        self._heartbeat = heartbeat
        self._config = config
        self._name = secrets.token_hex(8)
        self._frames = FrameQueue(_UNREAD, _UNREAD_SIZE)
        self._subscription: Subscription | None = None
        self._seen = 0
        self._change: asyncio.Future[None] | None = None

    async def __aenter__(self) -> Self:
        """Subscribe and make the consumer; raises as `JetStream.api`."""
        connection = self._js.mailbox.connection
        inbox = self._js.mailbox.new_inbox()
        self._change = connection.changed
        if self._change is not None:
            self._change.add_done_callback(self._connection_changed)
        try:
            # A pushed record keeps its own subject, so the mailbox's subscription cannot assign it to its consumer.
            self._subscription = await connection.subscribe_now(inbox, self._frames.put)
        except FAULTS as error:
            raise BusDisconnected(f"the NATS connection failed: {error}") from error
        try:
            await self._create(inbox)
        except BaseException:
            await self._unsubscribe()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Delete the consumer; if the request does not arrive, the server deletes it later."""
        await self._unsubscribe()
        with suppress(BusDisconnected):
            target = f"{self._js.prefix}.CONSUMER.DELETE.{self._stream}.{self._name}"
            await self._js.mailbox.send(target, b"")

    def _connection_changed(self, _: asyncio.Future[None]) -> None:
        """Break at once: what was pushed while there was no connection is lost, and the next heartbeat is far."""
        self._frames.end(f"the connection to the consumer of {self._stream} was lost")

    async def next(self) -> Record | None:
        """The next record, or None for a heartbeat (there is no record at the moment).

        Raises:
            StreamBroken: a record was lost, the connection was, or the consumer is gone.
        """
        while True:
            frame = await self._next_frame()
            if frame.reply.startswith("$JS.ACK."):
                return self._record(frame)
            if await self._read_status(frame):
                return None

    async def _next_frame(self) -> Frame:
        try:
            return await self._frames.get(3 * self._heartbeat)
        except RequestTimeout:
            raise StreamBroken(f"the consumer of {self._stream} fell silent") from None

    async def left(self) -> int:
        """The number of records still to come, as the server counts them now.

        Raises:
            StreamBroken: the consumer is gone.
            As `JetStream.api`.
        """
        try:
            info = await self._js.api(f"CONSUMER.INFO.{self._stream}.{self._name}")
        except NotFound:
            raise StreamBroken(f"the consumer of {self._stream} ended") from None
        return info.get("num_pending", 0) + info["delivered"]["consumer_seq"] - self._seen

    async def _create(self, inbox: str) -> None:
        config = {
            "name": self._name,
            "deliver_subject": inbox,
            "deliver_policy": "all",
            "ack_policy": "none",
            "max_deliver": 1,
            "mem_storage": True,
            "num_replicas": 1,
            "flow_control": True,
            "idle_heartbeat": int(self._heartbeat * 1e9),
            "inactive_threshold": int(_INACTIVE * 1e9),
            **self._config,
        }
        target = f"CONSUMER.CREATE.{self._stream}.{self._name}"
        if len(self._subjects) == 1:
            config["filter_subject"] = self._subjects[0]
            target = f"{target}.{self._subjects[0]}"
        elif self._subjects:
            config["filter_subjects"] = list(self._subjects)
        document = {"stream_name": self._stream, "config": config, "action": "create"}
        info = await self._js.api(target, document)
        delivered = (info.get("delivered") or {}).get("consumer_seq", 0)
        self.pending = info.get("num_pending", 0) + delivered

    async def _unsubscribe(self) -> None:
        if self._change is not None:
            self._change.remove_done_callback(self._connection_changed)
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            with suppress(*FAULTS):  # the connection is on its way out
                await subscription.unsubscribe()

    def _record(self, frame: Frame) -> Record:
        ack = parse_ack_subject(frame.reply)
        if ack is None:
            raise ProtocolViolation("the reply subject of a record does not acknowledge a delivery")
        if ack.number != self._seen + 1:
            raise StreamBroken(f"records of {self._stream} were lost on the way")
        self._seen = ack.number
        place = ack.place
        return Record(
            frame.subject,
            frame.data,
            frame.headers or {},
            place.sequence,
            place.stamp / 1e9,
            ack.pending,
        )

    async def _read_status(self, frame: Frame) -> bool:
        """Read a heartbeat, which counts what was sent so far; or answer a flow control request, and return False."""
        headers = frame.headers or {}
        if headers.get("Status") != "100":
            raise StreamBroken(f"the consumer of {self._stream} ended")
        if int(headers.get("Nats-Last-Consumer", "0")) > self._seen:
            raise StreamBroken(f"records of {self._stream} were lost on the way")
        if answer := frame.reply or headers.get("Nats-Consumer-Stalled", ""):
            await self._js.mailbox.send(answer, b"")
        return not answer


async def read_stream(
    js: JetStream, stream: str, *, after: int = 0, subjects: Sequence[str] = ()
) -> AsyncGenerator[Record, None]:
    """The records after sequence `after`, in order, up to the last one that the stream has at the beginning.

    Raises:
        StreamBroken: the consumer broke `_ATTEMPTS` times in a row.
        As `JetStream.api`.
    """
    end = int((await js.api(f"STREAM.INFO.{stream}"))["state"]["last_seq"])
    failures = 0
    while after < end:
        start: dict[str, Any] = {"deliver_policy": "by_start_sequence", "opt_start_seq": after + 1}
        try:
            async with OrderedConsumer(js, stream, subjects, **start) as consumer:
                pending = consumer.pending
                while pending:
                    record = await consumer.next()
                    if record is None:  # what was there may have been deleted since
                        pending = await consumer.left()
                        continue
                    if record.sequence > end:
                        return
                    yield record
                    after, failures, pending = record.sequence, 0, record.pending
                    if after == end:
                        return
                return
        except (StreamBroken, RequestTimeout, NoResponders, BusDisconnected):
            failures += 1
            if failures == _ATTEMPTS or js.mailbox.connection.is_closed:
                raise
