"""What the bus promises: the `MessageBusProvider` and `BusAdmin` ports.

Two implementations keep them, proved by one contract suite: NATS (`postroom.bus.nats`) and an in-memory twin
that ships for tests (`postroom.bus.memory`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
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
    """A message as received.

    Attributes:
        id: the `Nats-Msg-Id` of a stored message, "" where none was given.
        sender_uid: from the authenticated subject, never from the payload; "" where the subject names none.
        timestamp: seconds since the epoch: when it was stored, or received where it is not stored.
        sequence: in its stream, 0 where it is not stored.
        reply_to: subject for an answer, "" if none is wanted.
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
        published: messages given to the bus and not refused.
        received: messages and deliveries handed to handlers.
        refused: calls that the bus denied or refused.
        ignored: frames that were not what their subject says, taken by nobody.
        dropped: messages lost because a handler was too slow (never stored records, which come again).
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
    """One delivery of a stored message to a consumer; it comes again unless it is acked or terminated.

    It is *open* until one of `ack`, `nak` and `term` was called; what is called after that does nothing. While
    it is open, in-progress beats are sent for it every `DELIVERY_BEAT` seconds, also after its handler returned:
    a handler may hand it on and acknowledge later. Closing the subscription ends the beats, and open deliveries
    may still be acknowledged for `ack_wait` seconds.
    """

    @property
    def message(self) -> Message:
        """What was delivered."""

    @property
    def attempt(self) -> int:
        """1 for the first delivery."""

    @property
    def pending(self) -> int:
        """Messages that wait behind this one."""

    async def ack(self, *, confirm: bool = True) -> None:
        """Done: it will not come again (short of a crash of the server before it wrote that down).

        Args:
            confirm: wait until the server said so; otherwise an acknowledgement that is lost on the way means
                that the message comes again.

        Raises:
            RequestTimeout: the server did not confirm in time; it may come again.
            BusDisconnected: there is no connection; it will come again.
        """

    async def nak(self, delay: float = 0.0) -> None:
        """Not done: it comes again after `delay` seconds, up to the consumer's `max_deliver`."""

    async def in_progress(self) -> None:
        """Being worked on: the consumer's `ack_wait` begins anew."""

    def set_aside(self) -> None:
        """Being worked on for long: it stays open, and counts no more toward the batch, so that another one comes."""

    async def term(self, reason: str) -> None:
        """Cannot ever be done: it does not come again and becomes a dead letter."""


class Subscription(Protocol):
    """Something that receives until it is closed."""

    async def close(self) -> None:
        """Stop receiving; a handler that runs is finished first, within a deadline. Idempotent."""


Handler = Callable[[Message], Awaitable[None]]
Responder = Callable[[Message], Awaitable[bytes]]
DeliveryHandler = Callable[[Delivery], Awaitable[None]]


class MessageBusProvider(Protocol):
    """One identity's connection to the bus.

    Order: what one publisher publishes to one subject is received in that order. Loss: a stored record is never
    lost once `publish` returned; a message that no stream stores reaches whoever listens at that moment and
    nobody else. Duplication: `consume` may deliver a record more than once; handlers must not mind.
    """

    @property
    def uid(self) -> str:
        """Whom this connection authenticated as."""

    async def publish(
        self,
        subject: str,
        payload: bytes,
        *,
        id: str = "",  # noqa: A002 (the field's own word)
        metadata: Mapping[str, str] | None = None,
        timeout: float = 5.0,
    ) -> Stored | None:
        """Publish; for a subject that a stream stores, return when the record is on disk.

        Args:
            id: de-duplication id; a record with the same id within the window is not stored again, and the
                answer says `duplicate`.
            timeout: seconds for the log's answer.

        Returns:
            Where it was stored, or None for a subject that nothing stores.

        Raises:
            StreamFull: a bound was reached; nothing was stored.
            LostUpdate: an expected sequence in the headers was not the last one.
            Forbidden: this identity may not publish there.
            RequestTimeout: no answer; it may or may not be stored (publish again with the same id).
            NoResponders: no stream stores the subject.
            MessageTooLarge: over the server's limit.
        """

    async def subscribe(self, subject: str, handler: Handler, *, queue: str = "") -> Subscription:
        """Receive what is published from now on, until closed; with `queue`, one of the group receives it.

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

        A request whose reply subject is not the asker's own is not answered. A responder that raises a
        `PostroomError` answers `{"error": <problem document>}`; any other error is reported and answered as an
        internal one.
        """

    async def consume(
        self, stream: str, durable: str, handler: DeliveryHandler, *, batch: int = 16
    ) -> Subscription:
        """Pull from a durable consumer, in order, until closed; survives reconnects.

        The handler acks, or hands the delivery on to someone who does (see `Delivery`). If it raises, the
        delivery is given back with the delay of `redelivery_delay` and the error is reported by `statistics`
        and the log. Frames that are not deliveries to this identity are ignored.

        Args:
            durable: name of the consumer; while it does not exist, it is waited for.
            handler: awaited for one delivery at a time.
            batch: most deliveries that are open at a time, fetched ahead ones included.

        Raises:
            Forbidden: an agent's consumers carry its own uid; others are not for it.
        """

    async def renew(self, *, timeout: float = 10.0) -> None:
        """Go on over a new connection, made with the present credential, without a gap.

        Nothing is lost, nothing comes twice, no call fails; subscriptions and open deliveries stay. The former
        connection has ended when this returns, and after `timeout` seconds in any case.

        Raises:
            BusDisconnected: no new connection was made in time; the former one stays in use.
            Unauthorized: the credential was refused; the former connection stays in use.
        """

    async def close(self) -> None:
        """Stop everything; idempotent."""

    def statistics(self) -> BusStatistics:
        """Counters since the bus was opened."""


class BusAdmin(Protocol):
    """What the control plane may do beside: shape streams and consumers, read and delete records."""

    async def ensure_stream(self, spec: StreamSpec) -> None:
        """Create the stream, or change it to `spec` if it exists."""

    async def ensure_consumer(self, spec: ConsumerSpec) -> None:
        """Create the durable consumer, or change what can be changed (filters, bounds)."""

    async def delete_consumer(self, stream: str, durable: str) -> None:
        """Delete it; nothing happens if there is none."""

    def replay(
        self, stream: str, *, after: int = 0, subjects: tuple[str, ...] = ()
    ) -> AsyncIterator[Message]:
        """Records with a sequence greater than `after`, in order, until the end of the stream as it is now."""

    async def get(self, stream: str, sequence: int) -> Message:
        """The record at `sequence`.

        Raises:
            NotFound: there is none (any more).
        """

    async def last(self, stream: str, subject: str) -> Message | None:
        """The last record on `subject`, or None."""

    async def delete(self, stream: str, sequence: int) -> None:
        """Delete one record; nothing happens if there is none."""

    async def pending(self, stream: str, durable: str) -> tuple[int, int]:
        """(not yet delivered, delivered and not yet acknowledged) of a consumer."""

    async def poke(self, stream: str, durable: str) -> None:
        """Make an idle consumer notice exhausted deliveries; takes nothing (facts: the advisory needs a pull)."""

    async def last_sequence(self, stream: str) -> int:
        """Sequence of the newest record, 0 for an empty stream."""

    async def purge(self, stream: str, subject: str = "") -> int:
        """Delete every record, or those whose subject matches `subject`; returns how many."""
