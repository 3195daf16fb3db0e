"""The memory broker: streams, consumers, live subscriptions and waiting requests of all its buses."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from postroom.bus.memory.clock import Clock, LoopClock
from postroom.bus.memory.consumer import MemoryConsumer
from postroom.bus.memory.stream import MemoryStream
from postroom.bus.port import Message, Stored
from postroom.errors import NotFound
from postroom.protocol.permissions import matches
from postroom.protocol.streams import ConsumerSpec, StreamSpec
from postroom.protocol.subjects import sender_of
from postroom_a2a.times import format_time

_ADVISORY_TYPES = {
    "MAX_DELIVERIES": "io.nats.jetstream.advisory.v1.max_deliver",
    "MSG_TERMINATED": "io.nats.jetstream.advisory.v1.terminated",
}


@dataclass(frozen=True, slots=True, eq=False)
class Interest:
    """A live subscription: pattern, queue group, and receiver of messages."""

    pattern: str
    queue: str
    take: Callable[[Message], None]


class MemoryBroker:
    """The counterpart of the NATS server; buses connect to it.

    Args:
        clock: the event loop's, unless a test brings its own.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock: Clock = clock or LoopClock()
        self.max_payload = 1024 * 1024
        self._streams: dict[str, MemoryStream] = {}
        self._consumers: dict[tuple[str, str], MemoryConsumer] = {}
        self._interests: list[Interest] = []
        self._waiting: dict[str, asyncio.Future[Message]] = {}
        self._arrivals: dict[tuple[str, str], asyncio.Event] = {}

    # Streams and consumers.

    def ensure_stream(self, spec: StreamSpec) -> None:
        """Create a stream, or change its bounds."""
        if spec.name in self._streams:
            self._streams[spec.name].spec = spec
        else:
            self._streams[spec.name] = MemoryStream(spec, self.clock)

    def stream(self, name: str) -> MemoryStream:
        """The stream of that name."""
        try:
            return self._streams[name]
        except KeyError:
            raise NotFound(f"there is no stream {name!r}") from None

    def ensure_consumer(self, spec: ConsumerSpec) -> None:
        """Create a durable consumer, or change it."""
        stream = self.stream(spec.stream)
        key = spec.stream, spec.durable
        if key in self._consumers:
            self._consumers[key].change(spec)
            return

        def advise(kind: str, sequence: int, deliveries: int, reason: str) -> None:
            self._advise(kind, spec, sequence, deliveries, reason)

        self._consumers[key] = MemoryConsumer(spec, stream, self.clock, advise)
        self._arrivals.pop(key, asyncio.Event()).set()

    def consumer(self, stream: str, durable: str) -> MemoryConsumer:
        """The durable consumer of that name."""
        try:
            return self._consumers[stream, durable]
        except KeyError:
            raise NotFound(f"{stream} has no consumer {durable!r}") from None

    async def await_consumer(self, stream: str, durable: str) -> MemoryConsumer:
        """The consumer, once it exists."""
        key = stream, durable
        while key not in self._consumers:
            await self._arrivals.setdefault(key, asyncio.Event()).wait()
        return self._consumers[key]

    def delete_consumer(self, stream: str, durable: str) -> None:
        """Forget a consumer, if there is one."""
        self._consumers.pop((stream, durable), None)

    def store(self, subject: str, payload: bytes, headers: Mapping[str, str]) -> Stored | None:
        """Store a record in the stream that covers `subject`; return None without one."""
        for stream in self._streams.values():
            if stream.covers(subject):
                stored = stream.store(subject, payload, headers)
                if not stored.duplicate:
                    self._tell_consumers(stream.spec.name, subject)
                return stored
        return None

    def _tell_consumers(self, stream: str, subject: str) -> None:
        for (name, _), consumer in list(self._consumers.items()):
            if name == stream:
                consumer.stored(subject)

    def _advise(
        self, kind: str, spec: ConsumerSpec, sequence: int, deliveries: int, reason: str
    ) -> None:
        """Publish the server's advisory for a delivery that is given up, in its words and shape."""
        advisory: dict[str, str | int] = {
            "type": _ADVISORY_TYPES[kind],
            "id": secrets.token_hex(11),
            "timestamp": format_time(self.clock.now()),
            "stream": spec.stream,
            "consumer": spec.durable,
            "stream_seq": sequence,
            "deliveries": deliveries,
        }
        if reason:
            advisory["reason"] = reason
        subject = f"$JS.EVENT.ADVISORY.CONSUMER.{kind}.{spec.stream}.{spec.durable}"
        self.store(subject, json.dumps(advisory).encode(), {})

    # Live messages.

    def listen(self, interest: Interest) -> Callable[[], None]:
        """Begin a live subscription; the returned function ends it."""
        self._interests.append(interest)

        def end() -> None:
            if interest in self._interests:
                self._interests.remove(interest)

        return end

    def route(self, message: Message) -> bool:
        """Give a live message to every subscriber, and to one of each queue group; return whether any took it."""
        if (waiting := self._waiting.get(message.subject)) is not None:
            if not waiting.done():
                waiting.set_result(message)
            return True
        groups: dict[str, Interest] = {}
        takers = []
        for interest in self._interests:
            if matches(interest.pattern, message.subject):
                if not interest.queue:
                    takers.append(interest)
                elif interest.queue not in groups:
                    groups[interest.queue] = interest
        for interest in groups.values():  # the next one of the group is next
            self._interests.remove(interest)
            self._interests.append(interest)
        for interest in [*takers, *groups.values()]:
            interest.take(message)
        return bool(takers or groups)

    async def answer(self, request: Message, timeout: float) -> Message | None:
        """Route `request` and wait for a message on its reply subject; None without a subscriber.

        Raises:
            TimeoutError: no answer within `timeout`.
        """
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._waiting[request.reply_to] = future

        def late() -> None:
            if not future.done():
                future.set_exception(TimeoutError())

        cancel = self.clock.call_later(timeout, late)
        try:
            return await future if self.route(request) else None
        finally:
            cancel()
            del self._waiting[request.reply_to]

    def live(
        self, subject: str, payload: bytes, headers: Mapping[str, str], reply_to: str
    ) -> Message:
        """A message that no stream stores."""
        return Message(
            id=headers.get("Nats-Msg-Id", ""),
            sender_uid=sender_of(subject),
            subject=subject,
            payload=payload,
            metadata=dict(headers),
            timestamp=self.clock.now(),
            reply_to=reply_to,
        )
