"""`MemoryBus`, one identity's connection to a memory broker, and `MemoryAdmin`, the control plane's rights over it."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence

from postroom.bus.acceptance import (
    accepts_published,
    accepts_pulled,
    accepts_request,
    answerer_of,
    error_answer,
    headers_of,
    stored_in,
)
from postroom.bus.handing import BusTasks
from postroom.bus.memory.broker import MemoryBroker
from postroom.bus.memory.subscriptions import ConsumerSubscription, LiveSubscription
from postroom.bus.port import (
    BusAdmin,
    BusStatistics,
    Counters,
    DeliveryHandler,
    Handler,
    Message,
    MessageBusProvider,
    Responder,
    Stored,
    Subscription,
)
from postroom.errors import (
    BusDisconnected,
    Forbidden,
    InvalidInput,
    MessageTooLarge,
    NoResponders,
    PostroomError,
    Refused,
    RequestTimeout,
)
from postroom.observe import get_logger
from postroom.protocol import subjects
from postroom.protocol.ids import CONTROL_PLANE, is_uid
from postroom.protocol.intervals import DELIVERY_BEAT
from postroom.protocol.permissions import Permissions, agent_permissions, allows
from postroom.protocol.streams import ConsumerSpec, StreamSpec

log = get_logger("postroom.bus")


class MemoryBus(MessageBusProvider):
    """Implements `MessageBusProvider`.

    Args:
        projects: feeds that an agent may post to.
        on_error: gets errors that no call waits for.
        beat: seconds between in-progress beats of open deliveries.
    """

    def __init__(
        self,
        broker: MemoryBroker,
        uid: str,
        *,
        projects: Sequence[str] = (),
        on_error: Callable[[Exception], None] | None = None,
        beat: float = DELIVERY_BEAT,
    ) -> None:
        if not is_uid(uid):
            raise InvalidInput(f"{uid!r} is not a uid")
        self.projects = tuple(projects)
        self._broker, self._uid, self._on_error, self._beat = broker, uid, on_error, beat
        self._counters = Counters()
        self._background = BusTasks(self._report)
        self._live: list[LiveSubscription] = []
        self._consuming: list[ConsumerSubscription] = []
        self._closed = False

    @property
    def uid(self) -> str:
        """The uid of this identity."""
        return self._uid

    def _report(self, error: Exception) -> None:
        log.warning("bus: %s", error, exc_info=None if isinstance(error, PostroomError) else error)
        if self._on_error is not None:
            self._on_error(error)

    # Rights.

    def _permissions(self) -> Permissions:
        if self._uid == CONTROL_PLANE:
            return Permissions((">",), (">",))
        return agent_permissions(self._uid, self.projects)

    def _check(self, subject: str, allowed: tuple[str, ...]) -> None:
        if self._closed:
            raise BusDisconnected("the bus was closed")
        # A requested wildcard must lie within an allowed one.
        if subject.endswith(">"):
            allowed = tuple(pattern for pattern in allowed if pattern.endswith(">"))
        if not allows(allowed, subject):
            self._counters.refused += 1
            raise Forbidden(f"this identity may not use {subject!r}")

    def _check_publish(self, subject: str, payload: bytes) -> None:
        self._check(subject, self._permissions().publish)
        if len(payload) > self._broker.max_payload:
            raise MessageTooLarge(f"the message has {len(payload)} bytes")

    # Publishing.

    async def publish(
        self,
        subject: str,
        payload: bytes,
        *,
        id: str = "",  # noqa: A002
        metadata: Mapping[str, str] | None = None,
        timeout: float = 5.0,  # noqa: ARG002 (memory answers at once)
        confirm: bool = True,
    ) -> Stored | None:
        stream, headers = stored_in(subject), headers_of(metadata, id)
        self._check_publish(subject, payload)
        reply = ""
        if subject.startswith("system.discovery."):
            reply = subjects.reply(self._uid, "all", secrets.token_hex(12))
        stored = None
        if stream:
            stored = self._store(subject, payload, headers)
        self._broker.route(self._broker.live(subject, payload, headers, reply))
        self._counters.published += 1
        return stored if confirm else None

    def _store(self, subject: str, payload: bytes, headers: Mapping[str, str]) -> Stored:
        try:
            stored = self._broker.store(subject, payload, headers)
        except Refused:
            self._counters.refused += 1
            raise
        if stored is None:
            raise NoResponders(f"no stream stores {subject!r}")
        return stored

    async def request(
        self,
        subject: str,
        payload: bytes,
        *,
        metadata: Mapping[str, str] | None = None,
        timeout: float = 5.0,
    ) -> Message:
        answerer, headers = answerer_of(subject), headers_of(metadata, "")
        self._check_publish(subject, payload)
        reply = subjects.reply(self._uid, answerer, secrets.token_hex(12))
        request = self._broker.live(subject, payload, headers, reply)
        try:
            answer = await self._broker.answer(request, timeout)
        except TimeoutError as error:
            raise RequestTimeout("the bus did not answer in time") from error
        if answer is None:
            raise NoResponders(f"nobody listens on {subject!r}")
        self._counters.published += 1
        return answer

    # Receiving.

    async def subscribe(self, subject: str, handler: Handler, *, queue: str = "") -> Subscription:

        def accepts(message: Message) -> bool:
            return accepts_published(message.subject, message.reply_to)

        return self._listen(subject, queue, accepts, handler)

    async def serve(self, subject: str, responder: Responder, *, queue: str = "") -> Subscription:

        def accepts(request: Message) -> bool:
            return accepts_request(self._uid, request.subject, request.reply_to)

        async def work(request: Message) -> None:
            try:
                answer = await responder(request)
            except PostroomError as error:
                answer = error_answer(error)
            except Exception:
                self._answer(request, error_answer(PostroomError("internal error")))
                raise
            self._answer(request, answer)

        return self._listen(subject, queue, accepts, work)

    def _answer(self, request: Message, payload: bytes) -> None:
        self._broker.route(self._broker.live(request.reply_to, payload, {}, ""))

    def _listen(
        self, subject: str, queue: str, accepts: Callable[[Message], bool], work: Handler
    ) -> Subscription:
        self._check(subject, self._permissions().subscribe)
        subscription = LiveSubscription(self._counters, accepts, work, self._report)
        subscription.open(self._broker, subject, queue, self._background)
        self._live.append(subscription)
        return subscription

    async def consume(
        self, stream: str, durable: str, handler: DeliveryHandler, *, batch: int = 16
    ) -> Subscription:
        if batch < 1:
            raise InvalidInput("a batch has one delivery or more")
        self._check(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{durable}", self._permissions().publish)

        def accepts(message: Message) -> bool:
            reply = f"$JS.ACK.{stream}.{durable}."
            return accepts_pulled(self._uid, stream, durable, self.projects, message.subject, reply)

        subscription = ConsumerSubscription(
            self._broker,
            self._background,
            handler,
            batch=batch,
            counters=self._counters,
            report=self._report,
            accepts=accepts,
            beat=self._beat,
        )
        subscription.start(stream, durable)
        self._consuming.append(subscription)
        return subscription

    # Ending.

    async def cut(self) -> None:
        """Lose the connection as a killed process would: give nothing back, finish nothing."""
        self._closed = True
        for subscription in (*self._live, *self._consuming):
            subscription.cut()
        await self._background.stop(timeout=1)

    async def renew(self, *, timeout: float = 10.0) -> None:  # noqa: ARG002
        """As `MessageBusProvider.renew`; here no credential expires."""
        if self._closed:
            raise BusDisconnected("the bus was closed")

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        for subscription in (*self._consuming, *self._live):
            await subscription.close()
        await self.cut()

    def statistics(self) -> BusStatistics:
        return self._counters.frozen(
            open_deliveries=sum(each.open_deliveries for each in self._consuming),
            connected=not self._closed,
        )


class MemoryAdmin(BusAdmin):
    """Implements `BusAdmin`."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker

    async def ensure_stream(self, spec: StreamSpec) -> None:
        self._broker.ensure_stream(spec)

    async def ensure_consumer(self, spec: ConsumerSpec) -> None:
        self._broker.ensure_consumer(spec)

    async def delete_consumer(self, stream: str, durable: str) -> None:
        self._broker.delete_consumer(stream, durable)

    async def replay(
        self, stream: str, *, after: int = 0, subjects: tuple[str, ...] = ()
    ) -> AsyncIterator[Message]:
        records = self._broker.stream(stream)
        end = records.last_sequence
        for message in list(records.after(after, subjects)):
            if message.sequence <= end:
                yield message

    async def follow(self, stream: str, *, after: int = 0) -> AsyncGenerator[Message | None]:
        records = self._broker.stream(stream)
        while True:
            more = records.more
            for message in list(records.after(after)):
                yield message
                after = message.sequence
            if not more.done():
                yield None
                await asyncio.wait({more})

    async def get(self, stream: str, sequence: int) -> Message:
        return self._broker.stream(stream).get(sequence)

    async def last(self, stream: str, subject: str) -> Message | None:
        return self._broker.stream(stream).last(subject)

    async def delete(self, stream: str, sequence: int) -> None:
        self._broker.stream(stream).delete(sequence)

    async def purge(self, stream: str, subject: str = "") -> int:
        return self._broker.stream(stream).purge(subject)

    async def pending(self, stream: str, durable: str) -> tuple[int, int]:
        return self._broker.consumer(stream, durable).counts()

    async def poke(self, stream: str, durable: str) -> None:
        self._broker.consumer(stream, durable).poke()

    async def last_sequence(self, stream: str) -> int:
        return self._broker.stream(stream).last_sequence
