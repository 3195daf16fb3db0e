"""The answers of a client: one consumer for all its calls, made again whenever it fails.

The consumer acknowledges nothing and lies in memory, since the stream keeps the answers. The reader makes it before the
first request. When an answer is missing or the server falls silent, it makes another behind the last answer it read.

What the callers of one connection share hangs on that connection (`shared`), and ends before it.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from postroom_a2a.binding.frames import LANE, Response, decode_response, sequence_of
from postroom_a2a.binding.subjects import response_subject, token
from postroom_a2a.durable.streams import Streams
from postroom_a2a.errors import (
    BusDisconnected,
    NotFound,
    PostroomError,
    ProtocolViolation,
    Refused,
)
from postroom_a2a.nats.acks import parse_ack_subject
from postroom_a2a.nats.jetstream import JetStream
from postroom_a2a.nats.mailbox import Mailbox
from postroom_a2a.nats.natspy import AdaptedConnection
from postroom_a2a.nats.port import (
    FAULTS,
    Connection,
    Frame,
    Subscription,
    status_of,
)
from postroom_a2a.retry import Backoff
from postroom_a2a.rpc import Id

HEARTBEAT = 2.0
"""Seconds between the server's heartbeats."""

SILENCE = 2.5 * HEARTBEAT
"""Seconds without a heartbeat after which the reader makes the consumer again."""

INACTIVE = 3.0
"""Seconds after which the server deletes the consumer of a client that is gone.

A client tries longer than this to make its consumer, so it can take the place of one that crashed.
"""

MAX_WAITING = 16_384
"""Waiting calls of a client at a time."""

_NAME = "_postroom_shared"
_ENDS = ("drain", "close", "_close")
"""Methods that end a connection; `async with` in nats-py calls the last."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class ResponseCounters:
    """Counts of one client.

    Attributes:
        unclaimed: answers that no call waited for.
        malformed: messages that are not answers.
        recreated: times that the consumer was made again.
    """

    read: int = 0
    unclaimed: int = 0
    malformed: int = 0
    recreated: int = 0


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer as it came.

    Attributes:
        sequence: of the frame in its stream of answers, 0 from a server that does not count.
        lane: announced by the server, "" for none.
    """

    response: Response
    sequence: int
    lane: str


class AnswerReader:
    """The answers of one client on one connection; its callers share the reader, whatever agents they call.

    The consumer is deleted when the last caller has let go, and before the connection ends; the next call makes it
    again.

    Args:
        connection: an open one, ours or of nats-py.
        client: id of the client; "" for a new one.
        mailbox: shared with others of the connection; None for a new one.
        prefix: of JetStream's API.

    Attributes:
        ready: request subjects whose streams exist.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        client: str = "",
        namespace: str = "a2a",
        streams: Streams | None = None,
        mailbox: Mailbox | None = None,
        prefix: str = "$JS.API",
    ) -> None:
        self.client = token(client) if client else secrets.token_hex(12)
        self.namespace = namespace
        self.subject = response_subject(self.client, namespace)
        self.streams = streams or Streams()
        self.counters = ResponseCounters()
        self.js = JetStream(mailbox or Mailbox(connection), prefix=prefix)
        self._owned = mailbox is None
        self._connection = connection
        self._holders = 0
        self._waiting: dict[Id, Callable[[Answered], None]] = {}
        self.ready: set[str] = set()
        self._opening = asyncio.Lock()
        self._subscription: Subscription | None = None
        self._inbox = ""
        self._consumer = ""
        self._former = ""  # the consumer before it, while it may still send heartbeats
        self._last = -1  # sequence in the stream of the last answer that was read
        self._delivered = 0  # its number in the consumer
        self._heard = 0.0
        self._broken = asyncio.Event()
        self._watching: asyncio.Task[None] | None = None
        self._answering: asyncio.Task[None] | None = None

    async def open(self, request_subject: str) -> None:
        """Provide the streams for requests on a subject, and listen for answers, unless that is done.

        Raises:
            EnvironmentFault: a stream lacks something, or JetStream is off.
            BusDisconnected: the NATS server cannot be reached.
        """
        async with self._opening:
            if request_subject in self.ready:
                return
            await self.streams.ensure_requests(self.js, request_subject)
            if self._watching is None:
                shared(self._connection).ending.add(self._end)
                await self.streams.ensure_responses(self.js, self.namespace, self.subject)
                await self._listen()
                await self._consume()
                self._watching = asyncio.create_task(self._watch(), name=f"watch {self.subject}")
            self.ready.add(request_subject)

    def hold(self) -> None:
        """Count one more caller."""
        self._holders += 1

    async def let_go(self) -> None:
        """Count one caller less; the last one closes the reader."""
        self._holders -= 1
        async with self._opening:
            if not self._holders:
                await self.close()

    async def close(self) -> None:
        """Delete the consumer; calls that still wait run into their deadline."""
        await self._give_back(self._drop)

    async def _end(self) -> None:
        """Delete the consumer before the connection ends, without waiting for the server."""
        await self._give_back(self._drop_unheard)

    async def _give_back(self, drop: Callable[[str], Awaitable[None]]) -> None:
        self.ready.clear()
        shared(self._connection).ending.discard(self._end)
        watching, self._watching = self._watching, None
        if watching is not None:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
        consumer, self._consumer = self._consumer, ""
        if consumer and self._connection.is_connected:
            await drop(consumer)
        subscription, self._subscription = self._subscription, None
        if subscription is not None and not self._connection.is_closed:
            with suppress(*FAULTS):
                await subscription.unsubscribe()
        if self._owned:
            await self.js.mailbox.close()

    def missing(self, request_subject: str) -> None:
        """Note that the stream of the requests was missing: `open` looks again."""
        self.ready.discard(request_subject)

    def expect(self, call_id: Id, arrived: Callable[[Answered], None]) -> None:
        """Call `arrived` with each answer to the call, until `forget`.

        Raises:
            Refused: too many calls wait, or the id is in use.
        """
        if len(self._waiting) >= MAX_WAITING:
            raise Refused("too many calls wait for answers on this connection")
        if call_id in self._waiting:
            raise Refused(f"a call with the id {call_id!r} waits already")
        self._waiting[call_id] = arrived

    def forget(self, call_id: Id) -> None:
        """Drop further answers to the call."""
        self._waiting.pop(call_id, None)

    # ── frames ───────────────────────────────────────────────────────────────────────────────────────

    def _arrived(self, frame: Frame) -> None:
        self._heard = self.js.mailbox.loop.time()
        ack = parse_ack_subject(frame.reply)
        if ack is None:
            self._control_frame(frame)
            return
        if ack.consumer != self._consumer:
            return  # of an earlier consumer; the present one reads the same answers
        if ack.number != self._delivered + 1:
            self._broken.set()  # a frame was lost on the way
            return
        self._delivered = ack.number
        if ack.place.sequence > self._last:
            self._last = ack.place.sequence
            self._read(frame)

    def _control_frame(self, frame: Frame) -> None:
        headers = frame.headers or {}
        if headers.get("Status") != "100":
            if status_of(frame):
                self._broken.set()  # the consumer was deleted, or its server stops
            return
        if frame.reply:  # flow control: the server goes on when it gets an answer
            self._answer_flow_control(frame.reply)
        elif stalled := headers.get("Nats-Consumer-Stalled"):
            self._answer_flow_control(stalled)
        delivered = headers.get("Nats-Last-Consumer", "")
        if not self._former and delivered.isdigit() and int(delivered) > self._delivered:
            self._broken.set()

    def _answer_flow_control(self, subject: str) -> None:
        # The server asks again with its next heartbeat, so one answer at a time is enough.
        if self._answering is None or self._answering.done():
            self._answering = asyncio.create_task(self._answer(subject))

    async def _answer(self, subject: str) -> None:
        with suppress(PostroomError):
            await self.js.mailbox.send(subject, b"")

    def _read(self, frame: Frame) -> None:
        try:
            response = decode_response(frame.data)
        except ProtocolViolation as error:
            self.counters.malformed += 1
            if self.counters.malformed == 1:
                _log.warning("%s: skipped a message: %s", self.subject, error)
            return
        self.counters.read += 1
        arrived = self._waiting.get(response.id)
        if arrived is None:
            self.counters.unclaimed += 1
            return
        headers = frame.headers
        if headers:
            arrived(Answered(response, sequence_of(headers), headers.get(LANE, "")))
        else:
            arrived(Answered(response, 0, ""))

    # ── the consumer ─────────────────────────────────────────────────────────────────────────────────

    async def _listen(self) -> None:
        if self._subscription is not None:
            return
        self._inbox = self._connection.new_inbox()
        try:
            self._subscription = await self.js.mailbox.connection.subscribe_now(
                self._inbox, self._arrived
            )
        except FAULTS as error:
            raise BusDisconnected(f"{self._inbox} cannot be subscribed: {error}") from error

    async def _consume(self) -> None:
        """Make the consumer behind the last answer read, or for new answers only."""
        stream = self.streams.responses
        state = (await self.js.api(f"STREAM.INFO.{stream}"))["state"]
        end = int(state.get("last_seq", 0))
        if self._last < 0:
            self._last = end
        elif end < self._last:
            self._last = 0  # the stream was made again: all its answers are new
        former, name = self._consumer, f"{self.client[:64]}_{secrets.token_hex(6)}"
        config = {
            "name": name,
            "deliver_subject": self._inbox,
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": self._last + 1,
            "ack_policy": "none",
            "filter_subject": self.subject,
            "flow_control": True,
            "idle_heartbeat": int(HEARTBEAT * 1e9),
            "inactive_threshold": int(INACTIVE * 1e9),
            "mem_storage": True,
            "num_replicas": 1,
            "max_deliver": 1,
        }
        # Deliveries may come before the answer to this call.
        self._consumer, self._former, self._delivered = name, former, 0
        self._broken.clear()  # what was found broken until now was the former consumer
        self._heard = self.js.mailbox.loop.time()
        try:
            await self.js.create_consumer(stream, name, config)
        except Refused as error:
            raise Refused(
                error.message,
                remedy=f"close clients, or let {stream} have more consumers (its max_consumers)",
            ) from error
        if former:
            await self._drop(former)
        self._former = ""

    async def _drop(self, consumer: str) -> None:
        with suppress(PostroomError):  # else the server deletes it after INACTIVE
            await self.js.api(self._deletion(consumer), timeout=2.0)

    async def _drop_unheard(self, consumer: str) -> None:
        with suppress(PostroomError):
            await self.js.mailbox.send(f"{self.js.prefix}.{self._deletion(consumer)}", b"")

    def _deletion(self, consumer: str) -> str:
        return f"CONSUMER.DELETE.{self.streams.responses}.{consumer}"

    async def _watch(self) -> None:
        """Make the consumer again whenever a frame is lost or the server falls silent."""
        loop, backoff = asyncio.get_running_loop(), Backoff(0.1, 4.0)
        while not self._connection.is_closed:
            if not await self._needs_recreation(self._heard + SILENCE - loop.time()):
                backoff.reset()
                continue
            if self._connection.is_connected:
                try:
                    await self._recreate()
                except PostroomError as error:
                    _log.warning("%s: answers cannot be read: %s", self.subject, error)
                    self._broken.set()
                else:
                    continue
            else:
                self._broken.set()
            await asyncio.sleep(backoff.next())

    async def _needs_recreation(self, timeout: float) -> bool:
        """Whether the consumer has failed; returns at once if so, else when it is time to look again."""
        if timeout <= 0:
            return True
        try:
            async with asyncio.timeout(min(timeout, HEARTBEAT)):
                await self._broken.wait()
        except TimeoutError:
            return not self._connection.is_connected
        return True

    async def _recreate(self) -> None:
        self.counters.recreated += 1
        try:
            await self._consume()
        except NotFound:
            await self.streams.ensure_responses(self.js, self.namespace, self.subject)
            await self._consume()


class Shared:
    """State that one connection's callers share.

    Attributes:
        mailboxes: by the prefix of their subjects.
        ending: called before the connection ends.
    """

    def __init__(self) -> None:
        self.mailboxes: dict[str, Mailbox] = {}
        self.responses: dict[str, AnswerReader] = {}
        self.ending: set[Callable[[], Awaitable[None]]] = set()

    def announced(self, end: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
        """`end` of a connection, behind the callbacks in `ending`."""

        async def ending(*args: Any, **options: Any) -> None:
            while self.ending:
                with suppress(PostroomError):
                    await self.ending.pop()()
            await end(*args, **options)

        return ending


def shared(connection: Connection) -> Shared:
    """The shared state of `connection`'s callers, kept as its attribute.

    Callers of a connection without attributes share nothing. Those of an adapter share what its connection has.
    """
    if isinstance(connection, AdaptedConnection):
        connection = connection.connection
    kept: dict[str, Any] = getattr(connection, "__dict__", {})
    if _NAME not in kept:
        kept[_NAME] = together = Shared()
        for name in _ENDS:
            if (end := getattr(connection, name, None)) is not None:
                kept[name] = together.announced(end)
    return kept[_NAME]
