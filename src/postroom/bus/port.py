"""The ports of the bus: `MessageBusProvider` and `BusAdmin`, with their promises.

One contract suite proves them for both implementations: NATS (`postroom.bus.nats`) and an in-memory twin for tests
(`postroom.bus.memory`).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Protocol

from postroom.protocol.streams import ConsumerSpec, StreamSpec
from postroom_a2a.nats.jetstream import Stored

__all__ = [
    "BusAdmin",
    "BusStatistics",
    "Delivery",
    "DeliveryHandler",
    "Handler",
    "Message",
    "MessageBusProvider",
    "Responder",
    "Stored",
    "Subscription",
]


@dataclass(frozen=True, slots=True)
class Message:
    """A received message.

    Attributes:
        id: the `Nats-Msg-Id` of a stored message, "" without one.
        sender_uid: from the authenticated subject, never from the payload; "" if the subject names none.
        timestamp: seconds since the epoch: when a stream stored it, else when it was received.
        sequence: in its stream; 0 if no stream stores it.
        reply_to: subject for an answer, "" for none.
    """

    id: str
    sender_uid: str
    subject: str
    payload: bytes
    metadata: Mapping[str, str] = field(default_factory=dict)
    timestamp: float = 0.0
    sequence: int = 0
    reply_to: str = ""


@dataclass(frozen=True, slots=True)
class BusStatistics:
    """Counters since the bus was opened.

    Attributes:
        published: messages that the bus accepted.
        received: messages and deliveries given to handlers.
        refused: calls that the bus denied or refused.
        ignored: frames that contradict their subject.
        dropped: live messages lost because a handler was too slow (stored records come again).
        reconnects: times the connection was made again.
        open_deliveries: deliveries that are neither acked nor given back.
    """

    published: int = 0
    received: int = 0
    acked: int = 0
    refused: int = 0
    ignored: int = 0
    dropped: int = 0
    handler_errors: int = 0
    reconnects: int = 0
    open_deliveries: int = 0
    connected: bool = True


class Delivery(Protocol):
    """One delivery of a stored message to a consumer; it comes again unless acked or terminated.

    It is *open* until the first call of `ack`, `nak` or `term`; later calls do nothing. While it is open, in-progress
    beats go out every `DELIVERY_BEAT` seconds, even after its handler returned: a handler may pass it on and
    acknowledge later. Closing the subscription ends the beats; open deliveries can still be acknowledged for `ack_wait`
    seconds.
    """

    @property
    def message(self) -> Message:
        """The delivered message."""

    @property
    def attempt(self) -> int:
        """1 for the first delivery."""

    @property
    def pending(self) -> int:
        """Number of messages that wait behind this one."""

    async def ack(self, *, confirm: bool = False) -> None:
        """Done: it will not come again, unless this is lost with the connection or in a crash of the server.

        Args:
            confirm: wait for the server's confirmation. It costs a frame in each direction, and a handler has to
                tolerate a second delivery in any case.

        Raises:
            RequestTimeout: no confirmation in time; it may come again.
            BusDisconnected: no connection; it will come again.
        """

    async def nak(self, delay: float = 0.0) -> None:
        """Not done: it comes again after `delay` seconds, up to the consumer's `max_deliver`."""

    async def in_progress(self) -> None:
        """Still in work: the consumer's `ack_wait` begins anew."""

    def set_aside(self) -> None:
        """In work for long: it stays open but leaves the batch, which makes room for another one."""

    async def term(self, reason: str) -> None:
        """Never possible: it does not come again and becomes a dead letter."""


class Subscription(Protocol):
    """A receiver until it is closed."""

    async def close(self) -> None:
        """Stop receiving; a running handler finishes first, within a deadline. Idempotent."""


Handler = Callable[[Message], Awaitable[None]]
Responder = Callable[[Message], Awaitable[bytes]]
DeliveryHandler = Callable[[Delivery], Awaitable[None]]


class MessageBusProvider(Protocol):
    """One identity's connection to the bus.

    Order: the messages of one publisher on one subject arrive in the order of publishing. Loss: a stored record is
        never lost once `publish` returned; a message that no stream stores reaches only the subscribers of that moment.
        Duplication: `consume` may deliver a record more than once; handlers must tolerate that.
    """

    @property
    def uid(self) -> str:
        """The uid of this identity."""

    async def publish(
        self,
        subject: str,
        payload: bytes,
        *,
        id: str = "",  # noqa: A002 (the field's own word)
        metadata: Mapping[str, str] | None = None,
        timeout: float = 5.0,
        confirm: bool = True,
    ) -> Stored | None:
        """Publish; if a stream stores the subject, return when the record is on disk.

        Args:
            id: de-duplication id; a second record with this id within the window is not stored, and the answer says
                `duplicate`.
            timeout: seconds for the log's answer.
            confirm: False sends a record without asking for that answer: for what the next record replaces anyway.

        Returns:
            Where it was stored; None for a subject that no stream stores, and without `confirm`.

        Raises:
            StreamFull: the stream is at a bound; nothing was stored.
            LostUpdate: the expected sequence in the headers was not the last one.
            Forbidden: this identity may not publish there.
            RequestTimeout: no answer; it may be stored or not (publish again with the same id).
            NoResponders: no stream stores the subject.
            MessageTooLarge: over the server's limit.
        """

    async def subscribe(self, subject: str, handler: Handler, *, queue: str = "") -> Subscription:
        """Receive messages from now on, until closed; with `queue`, one subscriber of the group receives each.

        Raises:
            Forbidden: this identity may not subscribe there.
        """

    async def request(
        self,
        subject: str,
        payload: bytes,
        *,
        metadata: Mapping[str, str] | None = None,
        timeout: float = 5.0,
    ) -> Message:
        """Ask and wait for one answer.

        Raises:
            NoResponders: nobody listens (known at once).
            RequestTimeout: no answer within `timeout` seconds.
            Forbidden: this identity may not publish there.
        """

    async def serve(self, subject: str, responder: Responder, *, queue: str = "") -> Subscription:
        """Answer requests on `subject`, several at a time.

        A request whose reply subject is not the requester's own gets no answer. If a responder raises a
        `PostroomError`, the answer is `{"error": <problem document>}`; any other error is reported and answered as an
        internal one.
        """

    async def consume(
        self, stream: str, durable: str, handler: DeliveryHandler, *, batch: int = 16
    ) -> Subscription:
        """Pull from a durable consumer, in order, until closed; survives reconnects.

        The handler acks the delivery or passes it on (see `Delivery`). If it raises, the delivery goes back with the
        delay of `redelivery_delay`, and `statistics` and the log show the error. Frames that are not deliveries to this
        identity are ignored.

        Args:
            durable: name of the consumer; `consume` waits until it exists.
            handler: awaited for one delivery at a time.
            batch: most open deliveries, including those fetched ahead.

        Raises:
            Forbidden: the consumer belongs to another agent.
        """

    async def renew(self, *, timeout: float = 10.0) -> None:
        """Move to a new connection, made with the present credential, without a gap.

        Nothing is lost or doubled and no call fails; subscriptions and open deliveries stay. The old connection has
        ended when this returns, after `timeout` seconds at the latest.

        Raises:
            BusDisconnected: no new connection in time; the old one stays in use.
            Unauthorized: the server refused the credential; the old connection stays in use.
        """

    async def close(self) -> None:
        """Stop everything; idempotent."""

    def statistics(self) -> BusStatistics:
        """Counters since the bus was opened."""


class BusAdmin(Protocol):
    """The control plane's further rights: to manage streams and consumers, to read and delete records."""

    async def ensure_stream(self, spec: StreamSpec) -> None:
        """Create the stream, or change it to `spec` if it exists."""

    async def ensure_consumer(self, spec: ConsumerSpec) -> None:
        """Create the durable consumer, or change its filters and bounds."""

    async def delete_consumer(self, stream: str, durable: str) -> None:
        """Delete the consumer, if it exists."""

    def replay(
        self, stream: str, *, after: int = 0, subjects: tuple[str, ...] = ()
    ) -> AsyncIterator[Message]:
        """Records with a sequence greater than `after`, in order, until the present end of the stream."""

    def follow(self, stream: str, *, after: int = 0) -> AsyncGenerator[Message | None]:
        """Records with a sequence greater than `after`, in order and without a gap, for ever.

        None comes in between whenever everything that is stored has come. Nothing is acknowledged: the reader knows
        its place. Close the generator, or the server goes on sending.

        Raises:
            StreamBroken, NoResponders, RequestTimeout, BusDisconnected: follow again after the last record that came.
        """

    async def get(self, stream: str, sequence: int) -> Message:
        """The record at `sequence`.

        Raises:
            NotFound: it never existed, or is gone.
        """

    async def last(self, stream: str, subject: str) -> Message | None:
        """The last record on `subject`, or None."""

    async def delete(self, stream: str, sequence: int) -> None:
        """Delete one record, if it exists."""

    async def pending(self, stream: str, durable: str) -> tuple[int, int]:
        """(not yet delivered, delivered and not yet acknowledged) of a consumer."""

    async def poke(self, stream: str, durable: str) -> None:
        """Make an idle consumer notice exhausted deliveries, whose advisory needs a pull; takes nothing."""

    async def last_sequence(self, stream: str) -> int:
        """Sequence of the newest record, 0 for an empty stream."""

    async def purge(self, stream: str, subject: str = "") -> int:
        """Delete every record, or those whose subject matches `subject`; returns how many."""


@dataclass(slots=True)
class Counters:
    """The counters of a bus; the names are those of `BusStatistics`."""

    published: int = 0
    received: int = 0
    acked: int = 0
    refused: int = 0
    ignored: int = 0
    dropped: int = 0
    handler_errors: int = 0
    reconnects: int = 0

    def frozen(self, *, open_deliveries: int, connected: bool) -> BusStatistics:
        """A snapshot for `statistics`."""
        return BusStatistics(**asdict(self), open_deliveries=open_deliveries, connected=connected)
