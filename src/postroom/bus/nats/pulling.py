"""The pull loop of a durable consumer: fetch, hand over in order, beat, survive.

One task keeps a pull waiting at the server; `Handing` has the deliveries. A pull ends with its last message or
with a status frame; if neither comes and the heartbeats stop, the connection is checked and a new pull is made.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from contextlib import suppress

from postroom.bus.background import Supervisor
from postroom.bus.handing import Handing
from postroom.bus.nats.delivery import NatsDelivery
from postroom.bus.nats.frames import parse_ack_subject, status_of
from postroom.bus.nats.link import Link, remaining
from postroom.bus.nats.replies import Replies, new_token
from postroom.bus.port import DeliveryHandler
from postroom.errors import BusDisconnected, NotFound, RequestTimeout
from postroom_a2a.nats.port import Frame
from postroom_a2a.nats.subscriptions import WireSubscription

PULL_EXPIRES = 30.0
"""Seconds that a pull waits at the server for messages."""

HEARTBEAT = 5.0
"""Seconds between the server's signs of life during a pull."""

TROUBLE_CAP = 5.0
"""Seconds: longest pause before a pull that the server refused is tried again, before jitter."""

_OVER = frozenset({"404", "408"})
"""Statuses that end a pull in order: nothing there, time is up."""


class PullLoop:
    """A `Subscription` to a durable consumer.

    Args:
        link, replies, supervisor: of the bus.
        own: uid of this identity, whose inbox the pulls name.
        stream, durable: the consumer.
        handler: awaited for one delivery at a time.
        batch: most open deliveries.
        accepts: whether a frame with this subject and reply subject is a delivery to us.
        beat: seconds between in-progress beats.
        on_closed: told when the loop has ended.
    """

    def __init__(
        self,
        link: Link,
        replies: Replies,
        supervisor: Supervisor,
        own: str,
        stream: str,
        durable: str,
        handler: DeliveryHandler,
        *,
        batch: int,
        accepts: Callable[[str, str], bool],
        beat: float,
        on_closed: Callable[[PullLoop], None],
    ) -> None:
        self._link, self._replies, self._supervisor = link, replies, supervisor
        self._own, self._stream, self._durable = own, stream, durable
        self._accepts, self._on_closed = accepts, on_closed
        self._wake = asyncio.Event()
        self._handing = Handing(
            handler,
            batch,
            counters=link.counters,
            supervisor=supervisor,
            report=link.report,
            beat=beat,
            changed=self._wake.set,
        )
        self._inbox = ""
        self._subscription: WireSubscription | None = None
        self._generation = -1
        self._outstanding = 0
        self._heard = 0.0
        self._status: tuple[str, str] = ("", "")
        self._closing: asyncio.Task[None] | None = None
        self._fetching: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin."""
        title = f"{self._stream}/{self._durable}"
        self._handing.start(title)
        self._fetching = self._supervisor.spawn(self._fetch(), f"fetch {title}")

    @property
    def open_deliveries(self) -> int:
        """Deliveries that are neither acked nor given back."""
        return self._handing.open

    # Frames.

    async def _arrived(self, frame: Frame) -> None:
        status = status_of(frame)
        if status[0]:
            self._heard = asyncio.get_running_loop().time()
            if status[0] != "100":
                self._status = status
                self._wake.set()
            return
        ack = parse_ack_subject(frame.reply)
        if ack is None or not self._accepts(frame.subject, frame.reply):
            self._link.counters.ignored += 1
            return
        self._heard = asyncio.get_running_loop().time()
        self._outstanding -= 1
        delivery = NatsDelivery(self._link, self._replies, frame, ack, self._handing.answered)
        self._handing.take(delivery)
        self._wake.set()

    # Fetching.

    async def _fetch(self) -> None:
        refusals = 0
        while True:
            self._wake.clear()
            if not self._handing.hungry:
                await self._wake.wait()
                continue
            try:
                await self._link.ready(None)
                await self._fresh_inbox()
                await self._pull()
            except RequestTimeout:
                await self._check_connection()
                continue
            except BusDisconnected:
                if self._link.lost is not None:
                    return
                continue
            code, description = self._status
            if not code or code in _OVER:
                refusals = 0
                continue
            refusals += 1
            if refusals == 3:  # fewer are a restart, or a consumer that is about to be made
                self._link.report(NotFound(f"cannot pull {self._stream}: {code} {description}"))
            pause = min(TROUBLE_CAP, 0.05 * 2 ** min(refusals, 10))
            await asyncio.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311

    async def _fresh_inbox(self) -> None:
        """A new inbox for each connection: pulls of an earlier one end with their inbox."""
        if self._generation == self._link.generation:
            return
        generation, former = self._link.generation, self._subscription
        inbox = f"_I.{self._own}.js.p.{new_token()}"
        self._subscription = await self._link.listen(inbox, self._arrived)
        self._inbox, self._generation = inbox, generation
        if former is not None:
            await self._retire(former)

    async def _retire(self, subscription: WireSubscription) -> None:
        """End a subscription, but take the frames that are on their way."""
        with suppress(RequestTimeout, BusDisconnected):
            await self._link.drain(subscription)

    async def _pull(self) -> None:
        """One pull, until it is over or its connection is."""
        self._status, self._heard = ("", ""), asyncio.get_running_loop().time()
        self._outstanding = self._handing.room
        if self._outstanding <= 0:
            return
        request = {
            "batch": self._outstanding,
            "expires": int(PULL_EXPIRES * 1e9),
            "idle_heartbeat": int(HEARTBEAT * 1e9),
        }
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{self._durable}"
        await self._link.send(subject, json.dumps(request).encode(), reply=self._inbox)
        while self._outstanding > 0 and not self._is_over():
            self._wake.clear()
            turn = self._link.turn
            if self._generation != self._link.generation:
                return
            waking = asyncio.ensure_future(self._wake.wait())
            silence = remaining(self._heard + 2 * HEARTBEAT + 1)
            try:
                await asyncio.wait({waking, turn}, timeout=silence, return_when="FIRST_COMPLETED")
            finally:
                waking.cancel()
            if remaining(self._heard + 2 * HEARTBEAT + 1) == 0:
                raise RequestTimeout("the server sent no heartbeat")

    def _is_over(self) -> bool:
        return bool(self._status[0])

    async def _check_connection(self) -> None:
        """After silence: ask the server for a sign of life, else connect again."""
        now = asyncio.get_running_loop().time()
        try:
            await self._link.settle(now + HEARTBEAT)
        except BusDisconnected:
            return
        except RequestTimeout:
            self._link.connection.reconnect()
        self._generation = -1

    # Closing.

    async def close(self) -> None:
        """Stop receiving; what was fetched and not handed over is given back at once. Idempotent."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        if not self._handing.within:  # a handler that closes its own loop ends first
            await asyncio.shield(self._closing)

    async def _close(self) -> None:
        self._handing.halt()
        if self._fetching is not None:
            await self._supervisor.stop(self._fetching, timeout=1)
        if self._subscription is not None:
            await self._retire(self._subscription)
        await self._handing.stop()
        self._on_closed(self)
