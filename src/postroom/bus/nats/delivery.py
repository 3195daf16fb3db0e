"""Deliveries of a durable consumer: pulled, handed over in order, answered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from postroom.bus.handing import BusTasks, Handing
from postroom.bus.nats.link import stored_message
from postroom.bus.port import Counters, Delivery, DeliveryHandler, Message
from postroom.errors import NotFound
from postroom_a2a.nats.acks import ACK, WORKING, AckSubject, give_back, give_up
from postroom_a2a.nats.jetstream import JetStream
from postroom_a2a.nats.port import Frame
from postroom_a2a.nats.pull import PullLoop

PULL_EXPIRES = 120.0
"""Seconds that a pull waits at the server for messages: an idle worker has four pulls, and each asks anew then."""

HEARTBEAT = 10.0
"""Seconds between the server's signs of life during a pull. They find only a pull that was lost at the server; that a
connection is gone, TCP and the pings of the connection say.
"""

CONFIRM_TIMEOUT = 5.0
"""Seconds for the server's confirmation of an acknowledgement."""


class NatsDelivery(Delivery):
    """A `Delivery`.

    Args:
        on_change: called when the delivery is set aside, and once when it is no longer open.
    """

    def __init__(
        self,
        js: JetStream,
        counters: Counters,
        frame: Frame,
        ack: AckSubject,
        on_change: Callable[[NatsDelivery], None],
    ) -> None:
        self._js = js
        self._counters = counters
        self._reply = frame.reply
        self._ack = ack
        self._message = stored_message(
            frame.subject, frame.data, frame.headers, ack.place.sequence, ack.place.stamp / 1e9
        )
        self._on_change = on_change
        self.open = True
        self.aside = False

    @property
    def message(self) -> Message:
        """The delivered message."""
        return self._message

    @property
    def attempt(self) -> int:
        """1 for the first delivery."""
        return self._ack.attempt

    @property
    def pending(self) -> int:
        """Number of messages that wait behind this one."""
        return self._ack.pending

    def _close(self) -> bool:
        if not self.open:
            return False
        self.open = False
        self._on_change(self)
        return True

    async def ack(self, *, confirm: bool = False) -> None:
        if not self._close():
            return
        self._counters.acked += 1
        if confirm:
            await self._js.ask(self._reply, ACK, timeout=CONFIRM_TIMEOUT)
        else:
            await self._js.mailbox.send_later(self._reply, ACK)

    async def nak(self, delay: float = 0.0) -> None:
        if self._close():
            await self._js.mailbox.send(self._reply, give_back(delay))

    async def in_progress(self) -> None:
        if self.open and self._js.mailbox.connection.is_connected:
            await self._js.mailbox.send(self._reply, WORKING)

    def set_aside(self) -> None:
        if self.open and not self.aside:
            self.aside = True
            self._on_change(self)

    async def term(self, reason: str) -> None:
        if self._close():
            await self._js.mailbox.send(self._reply, give_up(reason))


class Consumption:
    """A `Subscription` to a durable consumer.

    Args:
        handler: awaited for one delivery at a time.
        accepts: whether a frame with this subject and reply subject is a delivery to this identity.
        beat: seconds between in-progress beats.
        report: gets errors that no call waits for.
        on_closed: called at its end.
    """

    def __init__(
        self,
        js: JetStream,
        counters: Counters,
        background: BusTasks,
        stream: str,
        durable: str,
        handler: DeliveryHandler,
        *,
        batch: int,
        accepts: Callable[[str, str], bool],
        beat: float,
        report: Callable[[Exception], None],
        on_closed: Callable[[Consumption], None],
    ) -> None:
        self._js, self._counters, self._background = js, counters, background
        self._accepts, self._on_closed = accepts, on_closed
        self._loop = PullLoop(
            js,
            stream,
            durable,
            self._take,
            self._room,
            report=lambda trouble: report(NotFound(trouble)),
            expires=PULL_EXPIRES,
            heartbeat=HEARTBEAT,
        )
        self._handing = Handing(
            handler,
            batch,
            counters=counters,
            background=background,
            report=report,
            beat=beat,
            changed=self._loop.changed,
        )
        self._closing: asyncio.Task[None] | None = None
        title = f"{stream}/{durable}"
        self._handing.start(title)
        self._pulling = background.spawn(self._loop.run(), f"pull {title}")

    @property
    def open_deliveries(self) -> int:
        """Number of deliveries that are neither acked nor given back."""
        return self._handing.open

    def _room(self) -> int:
        return self._handing.room if self._handing.hungry else 0

    def _take(self, frame: Frame, ack: AckSubject | None) -> bool:
        if ack is None or not self._accepts(frame.subject, frame.reply):
            self._counters.ignored += 1
            return False
        delivery = NatsDelivery(self._js, self._counters, frame, ack, self._handing.answered)
        self._handing.take(delivery)
        return True

    async def close(self) -> None:
        """Stop receiving; give back at once what was fetched and not handed over. Idempotent."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        if not self._handing.within:  # a handler that closes its own consumption must end first
            await asyncio.shield(self._closing)

    async def _close(self) -> None:
        self._handing.halt()
        self._loop.stop()
        await self._background.stop(self._pulling, timeout=1)
        await self._loop.close(drain=True)
        await self._handing.stop()
        self._on_closed(self)
