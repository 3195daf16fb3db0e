"""`NatsBus`: one identity's connection to the bus, over NATS."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

from postroom.bus.acceptance import accepts_pulled, answerer_of, headers_of, stored_in
from postroom.bus.address import BusAddress
from postroom.bus.handing import BusTasks
from postroom.bus.nats.delivery import Consumption
from postroom.bus.nats.link import Link, live_message, remaining
from postroom.bus.nats.listening import CONCURRENT_REQUESTS, NatsSubscription, accepts_live, serving
from postroom.bus.port import (
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
from postroom.errors import Forbidden, InvalidInput, NoResponders, PostroomError, Refused
from postroom.protocol import subjects
from postroom.protocol.ids import CONTROL_PLANE, is_uid
from postroom.protocol.intervals import DELIVERY_BEAT
from postroom.protocol.subjects import JETSTREAM
from postroom_a2a.nats import Credentials
from postroom_a2a.nats.jetstream import JetStream
from postroom_a2a.nats.mailbox import Mailbox
from postroom_a2a.nats.port import NO_RESPONDERS, status_of

T = TypeVar("T")

CONNECT_TIMEOUT = 10.0
"""Seconds for the first connection."""

CLOSE_TIMEOUT = 10.0
"""Seconds after which closing leaves tasks behind that have not ended."""


class _Closable(Protocol):
    async def close(self) -> None: ...


class NatsBus(MessageBusProvider):
    """Implements `MessageBusProvider`; made by `connect`.

    Attributes:
        projects: their feeds may deliver to this identity; set it when membership changes.
        connection: the library's.
        mailbox: receives the answers to this identity, `_I.<uid>.<answerer>.<token>`: so even an answer names its
            sender.
            Exactly four tokens: the inboxes of pulls have more, and their frames must not arrive twice.
    """

    def __init__(self, uid: str, link: Link, *, projects: tuple[str, ...], beat: float) -> None:
        self._uid = uid
        self._link = link
        self.connection = link.connection
        self.mailbox = Mailbox(self.connection, prefix=f"_I.{uid}.*")
        self.jetstream = JetStream(
            Mailbox(self.connection, prefix=f"_I.{uid}.{JETSTREAM}", within=self.mailbox)
        )
        self._background = BusTasks(link.report)
        self._subscriptions: set[NatsSubscription] = set()
        self._consumptions: set[Consumption] = set()
        self._beat = beat
        self._closing: asyncio.Task[None] | None = None
        self.projects = projects

    @classmethod
    async def connect(
        cls,
        servers: str | Sequence[str] | BusAddress,
        *,
        uid: str,
        jwt: Callable[[], str] | None = None,
        sign: Callable[[bytes], bytes] | None = None,
        name: str = "",
        projects: Sequence[str] = (),
        on_error: Callable[[Exception], None] | None = None,
        connect_timeout: float = CONNECT_TIMEOUT,
        beat: float = DELIVERY_BEAT,
    ) -> NatsBus:
        """Connect as `uid`.

        Args:
            servers: addresses, `nats://host:port`; with TLS as a `BusAddress`.
            uid: the credential's; every reply subject carries it.
            jwt: gives the credential, at each connect; without it the server must be open (tests).
            sign: gives the raw Ed25519 signature of the server's nonce.
            name: shown by the server's monitoring.
            projects: feeds that this identity receives.
            on_error: gets errors that no call waits for.
            beat: seconds between in-progress beats of open deliveries.

        Raises:
            BusDisconnected: no server answered in time.
            Unauthorized: the server refused the credential.
        """
        if not is_uid(uid):
            raise InvalidInput(f"{uid!r} is not a uid")
        if (jwt is None) != (sign is None):
            raise InvalidInput("give both jwt and sign, or neither")
        link = Link(Counters(), on_error)
        if not isinstance(servers, BusAddress):
            servers = BusAddress((servers,) if isinstance(servers, str) else tuple(servers))
        await link.open(
            servers,
            name=name or f"postroom {uid}",
            credentials=Credentials(sign, jwt) if jwt and sign else None,
            timeout=connect_timeout,
        )
        bus = cls(uid, link, projects=tuple(projects), beat=beat)
        try:
            await bus.jetstream.mailbox.open()
            await link.connection.settle(connect_timeout)
        except BaseException:
            await link.close()
            raise
        return bus

    @property
    def uid(self) -> str:
        """The uid of this identity."""
        return self._uid

    @property
    def lost(self) -> PostroomError | None:
        """Why the connection is gone for good (closed, credential expired or revoked); None while it works."""
        return self._link.lost

    async def wait_lost(self) -> PostroomError:
        """Wait until the connection is gone for good, and return why."""
        while self._link.lost is None:
            await asyncio.wait({self.connection.changed})
        return self._link.lost

    async def renew(self, *, timeout: float = CONNECT_TIMEOUT) -> None:
        """As `MessageBusProvider.renew`: with what `jwt` and `sign` now return."""
        await self.connection.renew(timeout)

    async def publish(
        self,
        subject: str,
        payload: bytes,
        *,
        id: str = "",  # noqa: A002
        metadata: Mapping[str, str] | None = None,
        timeout: float = 5.0,
        confirm: bool = True,
    ) -> Stored | None:
        stream, headers = stored_in(subject), headers_of(metadata, id)
        self._link.check_size(payload, headers)
        stored = None
        if stream and not confirm and headers:
            await self._link.send(subject, payload, headers=headers)
        elif stream and not confirm:
            await self.mailbox.send_later(subject, payload)
        elif stream:
            publishing = self.jetstream.publish(subject, payload, headers=headers, timeout=timeout)
            stored = await self._counted(publishing)
        else:
            await self._counted(self._publish_live(subject, payload, headers, timeout))
        self._link.counters.published += 1
        return stored

    async def _publish_live(
        self, subject: str, payload: bytes, headers: dict[str, str], timeout: float
    ) -> None:
        deadline = asyncio.get_running_loop().time() + timeout
        reply = ""
        if subjects.parse(subject).kind == "discovery":
            # An announcement counts only with this reply subject (docs/architecture.md, The bus).
            reply = subjects.reply(self._uid, "all", secrets.token_hex(12))
        await self._link.ready(deadline)
        await self.connection.deliver(
            subject, payload, reply, headers, timeout=remaining(deadline) or 0.0
        )

    async def _counted(self, call: Awaitable[T]) -> T:
        try:
            return await call
        except (Refused, Forbidden):
            self._link.counters.refused += 1
            raise

    async def subscribe(self, subject: str, handler: Handler, *, queue: str = "") -> Subscription:
        return await self._listen(subject, queue, accepts_live, handler, concurrent=1)

    async def serve(self, subject: str, responder: Responder, *, queue: str = "") -> Subscription:
        accepts, work = serving(self._link, self._uid, responder)
        return await self._listen(subject, queue, accepts, work, concurrent=CONCURRENT_REQUESTS)

    async def _listen(
        self,
        subject: str,
        queue: str,
        accepts: Callable[[Message], bool],
        work: Handler,
        *,
        concurrent: int,
    ) -> Subscription:
        subscription = NatsSubscription(
            self._link,
            self._background,
            accepts,
            work,
            concurrent=concurrent,
            on_closed=self._subscriptions.discard,
        )
        await subscription.open(subject, queue)
        self._subscriptions.add(subscription)
        return subscription

    async def request(
        self,
        subject: str,
        payload: bytes,
        *,
        metadata: Mapping[str, str] | None = None,
        timeout: float = 5.0,
    ) -> Message:
        """As `MessageBusProvider.request`; also asks `$`-subjects of the server, where permitted."""
        answerer, headers = answerer_of(subject), headers_of(metadata, "")
        deadline = asyncio.get_running_loop().time() + timeout
        await self._link.ready(deadline)
        answer = await self._counted(
            self.mailbox.ask(
                subject,
                payload,
                timeout=remaining(deadline) or 0.0,
                headers=headers,
                prefix=f"_I.{self._uid}.{answerer}",
            )
        )
        if status_of(answer) == NO_RESPONDERS:
            raise NoResponders(f"nobody listens on {subject!r}")
        self._link.counters.published += 1
        return live_message(answer)

    async def consume(
        self, stream: str, durable: str, handler: DeliveryHandler, *, batch: int = 16
    ) -> Subscription:
        if batch < 1:
            raise InvalidInput("a batch has one delivery or more")
        if self._uid not in (durable, CONTROL_PLANE):
            raise Forbidden("an agent may use only consumers with its own uid")

        def accepts(subject: str, reply: str) -> bool:
            return accepts_pulled(self._uid, stream, durable, self.projects, subject, reply)

        consumption = Consumption(
            self.jetstream,
            self._link.counters,
            self._background,
            stream,
            durable,
            handler,
            batch=batch,
            accepts=accepts,
            beat=self._beat,
            report=self._link.report,
            on_closed=self._consumptions.discard,
        )
        self._consumptions.add(consumption)
        return consumption

    async def close(self) -> None:
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        parts: list[_Closable] = [*self._consumptions, *self._subscriptions]
        closing = {asyncio.create_task(part.close()) for part in parts}
        if closing:
            await asyncio.wait(closing, timeout=CLOSE_TIMEOUT)
        await self._background.stop(timeout=1)
        await self._link.close()

    def statistics(self) -> BusStatistics:
        open_deliveries = sum(each.open_deliveries for each in self._consumptions)
        counters = replace(
            self._link.counters,
            dropped=self.connection.dropped,
            reconnects=self.connection.reconnects,
            ignored=self._link.counters.ignored + self.mailbox.late,
        )
        return counters.frozen(
            open_deliveries=open_deliveries, connected=self.connection.is_connected
        )
