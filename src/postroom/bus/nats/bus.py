"""`NatsBus`: one identity's connection to the bus, over NATS."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from postroom.bus.acceptance import accepts_pulled, answerer_of, headers_of, stored_in
from postroom.bus.address import BusAddress
from postroom.bus.background import Supervisor
from postroom.bus.counters import Counters
from postroom.bus.nats.attachment import Credentials
from postroom.bus.nats.connection import BusConnection
from postroom.bus.nats.delivery import Consumption
from postroom.bus.nats.frames import live_message
from postroom.bus.nats.link import Link
from postroom.bus.nats.listening import CONCURRENT_REQUESTS, Listener, accepts_live, serving
from postroom.bus.nats.replies import Replies, new_token
from postroom.bus.port import (
    BusStatistics,
    DeliveryHandler,
    Handler,
    Message,
    Responder,
    Stored,
    Subscription,
)
from postroom.errors import Forbidden, InvalidInput, NoResponders, PostroomError, Refused
from postroom.protocol import subjects
from postroom.protocol.ids import CONTROL_PLANE, is_uid
from postroom.protocol.streams import BEAT_INTERVAL
from postroom_a2a.nats.jetstream import JetStream
from postroom_a2a.nats.mailbox import Mailbox

CONNECT_TIMEOUT = 10.0
"""Seconds for the first connection."""

CLOSE_TIMEOUT = 10.0
"""Seconds after which closing goes on without what has not ended."""


class _Closable(Protocol):
    async def close(self) -> None: ...


class NatsBus:
    """Implements `MessageBusProvider`; made by `connect`.

    Attributes:
        projects: whose feeds a delivery to this identity may come from; set it when membership changes.
        jetstream: over this connection.
    """

    def __init__(self, uid: str, link: Link, *, projects: tuple[str, ...], beat: float) -> None:
        self._uid = uid
        self._link = link
        self._replies = Replies(link, uid)
        self._connection = BusConnection(link, self._replies, uid)
        self.jetstream = JetStream(Mailbox(self._connection, prefix=f"_I.{uid}.js"))
        self._supervisor = Supervisor(link.report)
        self._listeners: set[Listener] = set()
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
        beat: float = BEAT_INTERVAL,
    ) -> NatsBus:
        """Connect as `uid`.

        Args:
            servers: addresses, `nats://host:port`; with TLS as a `BusAddress`.
            uid: whom the credential names; every reply subject carries it.
            jwt: gives the credential, at each connect; without it the server must be open (tests).
            sign: gives the raw Ed25519 signature of the server's nonce.
            name: shown by the server's monitoring.
            projects: whose feeds this identity receives.
            on_error: told about errors that no call waits for.
            connect_timeout: seconds.
            beat: seconds between in-progress beats of open deliveries.

        Raises:
            BusDisconnected: no server answered in time.
            Unauthorized: the server refused the credential.
        """
        if not is_uid(uid):
            raise InvalidInput(f"{uid!r} is not a uid")
        if (jwt is None) != (sign is None):
            raise InvalidInput("a JWT needs its signature, and the other way round")
        link = Link(Counters(), on_error)
        if not isinstance(servers, BusAddress):
            servers = BusAddress((servers,) if isinstance(servers, str) else tuple(servers))
        await link.open(
            servers,
            name=name or f"postroom {uid}",
            credentials=Credentials(jwt, sign) if jwt and sign else None,
            timeout=connect_timeout,
        )
        bus = cls(uid, link, projects=tuple(projects), beat=beat)
        try:
            await bus._replies.open()
            await bus.jetstream.mailbox.open()
        except BaseException:
            await link.close()
            raise
        return bus

    @property
    def uid(self) -> str:
        """Whom this connection authenticated as."""
        return self._uid

    @property
    def lost(self) -> PostroomError | None:
        """Why the connection is gone for good (closed, credential expired or revoked), None while it is not."""
        return self._link.lost

    @property
    def connection(self) -> BusConnection:
        """This connection as `postroom_a2a` uses one."""
        return self._connection

    async def wait_lost(self) -> PostroomError:
        """Wait until the connection is gone for good, and say why."""
        while self._link.lost is None:
            await asyncio.wait({self._link.turn})
        return self._link.lost

    async def renew(self, *, timeout: float = CONNECT_TIMEOUT) -> None:
        """As `MessageBusProvider.renew`: with what `jwt` and `sign` now return."""
        await self._link.renew(asyncio.get_running_loop().time() + timeout)

    async def publish(
        self,
        subject: str,
        payload: bytes,
        *,
        id: str = "",  # noqa: A002
        metadata: Mapping[str, str] | None = None,
        timeout: float = 5.0,
    ) -> Stored | None:
        """As `MessageBusProvider.publish`."""
        stream, headers = stored_in(subject), headers_of(metadata, id)
        self._link.check_size(payload, headers)
        try:
            if stream:
                stored = await self.jetstream.publish(
                    subject, payload, headers=headers, timeout=timeout
                )
            else:
                stored = None
                deadline = asyncio.get_running_loop().time() + timeout
                await self._publish_live(subject, payload, headers, deadline)
        except Refused:
            self._link.counters.refused += 1
            raise
        self._link.counters.published += 1
        return stored

    async def _publish_live(
        self, subject: str, payload: bytes, headers: dict[str, str], deadline: float
    ) -> None:
        denied: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        reply = ""
        if subjects.parse(subject).kind == "discovery":
            # Only with this reply subject does an announcement count (docs/architecture.md, The bus).
            reply = subjects.reply(self._uid, "all", new_token())
        with self._link.watching("publish", subject, denied):
            await self._link.ready(deadline)
            await self._link.send(subject, payload, reply=reply, headers=headers)
            await self._link.settle(deadline)
            if denied.done():
                denied.result()

    async def subscribe(self, subject: str, handler: Handler, *, queue: str = "") -> Subscription:
        """As `MessageBusProvider.subscribe`."""
        return await self._listen(subject, queue, accepts_live, handler, concurrent=1)

    async def serve(self, subject: str, responder: Responder, *, queue: str = "") -> Subscription:
        """As `MessageBusProvider.serve`."""
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
        listener = Listener(
            self._link,
            self._supervisor,
            accepts,
            work,
            concurrent=concurrent,
            on_closed=self._listeners.discard,
        )
        await listener.open(subject, queue)
        self._listeners.add(listener)
        return listener

    async def request(
        self,
        subject: str,
        payload: bytes,
        *,
        metadata: Mapping[str, str] | None = None,
        timeout: float = 5.0,
    ) -> Message:
        """As `MessageBusProvider.request`; `$`-subjects of the server may be asked too, where permitted."""
        answerer, headers = answerer_of(subject), headers_of(metadata, "")
        deadline = asyncio.get_running_loop().time() + timeout
        answer = await self._replies.ask(
            subject, payload, answerer=answerer, deadline=deadline, headers=headers
        )
        if answer.no_responders:
            raise NoResponders(f"nobody listens on {subject!r}")
        self._link.counters.published += 1
        return live_message(answer.frame)

    async def consume(
        self, stream: str, durable: str, handler: DeliveryHandler, *, batch: int = 16
    ) -> Subscription:
        """As `MessageBusProvider.consume`."""
        if batch < 1:
            raise InvalidInput("a batch has one delivery or more")
        if self._uid not in (durable, CONTROL_PLANE):
            raise Forbidden("an agent's consumers carry its own uid")

        def accepts(subject: str, reply: str) -> bool:
            return accepts_pulled(self._uid, stream, durable, self.projects, subject, reply)

        consumption = Consumption(
            self.jetstream,
            self._link.counters,
            self._supervisor,
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
        """As `MessageBusProvider.close`."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        parts: list[_Closable] = [*self._consumptions, *self._listeners]
        closing = {asyncio.create_task(part.close()) for part in parts}
        if closing:
            await asyncio.wait(closing, timeout=CLOSE_TIMEOUT)
        await self._supervisor.stop(timeout=1)
        await self._link.close()

    def statistics(self) -> BusStatistics:
        """As `MessageBusProvider.statistics`."""
        open_deliveries = sum(each.open_deliveries for each in self._consumptions)
        return self._link.counters.frozen(open_deliveries=open_deliveries, connected=self._link.up)
