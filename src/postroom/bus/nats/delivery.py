"""One delivery by a JetStream consumer, and how it is answered."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

from postroom.bus.nats.frames import AckSubject, stored_message
from postroom.bus.nats.link import Link
from postroom.bus.nats.replies import Replies
from postroom.bus.port import Message
from postroom.protocol.subjects import JETSTREAM
from postroom_a2a.nats.port import Frame

CONFIRM_TIMEOUT = 5.0
"""Seconds to wait for the server's word on an acknowledgement."""


class NatsDelivery:
    """A `Delivery`; the words of the answers are JetStream's acknowledgement protocol (NATS ADR-15).

    Args:
        frame: what the consumer delivered.
        ack: its reply subject, parsed.
        on_change: told when the delivery was set aside, and once when it is no longer open.
    """

    def __init__(
        self,
        link: Link,
        replies: Replies,
        frame: Frame,
        ack: AckSubject,
        on_change: Callable[[NatsDelivery], None],
    ) -> None:
        self._link = link
        self._replies = replies
        self._reply = frame.reply
        self._ack = ack
        self._message = stored_message(frame, ack)
        self._on_change = on_change
        self.open = True
        self.aside = False

    @property
    def message(self) -> Message:
        """What was delivered."""
        return self._message

    @property
    def attempt(self) -> int:
        """1 for the first delivery."""
        return self._ack.attempt

    @property
    def pending(self) -> int:
        """Messages that wait behind this one."""
        return self._ack.pending

    def _close(self) -> bool:
        if not self.open:
            return False
        self.open = False
        self._on_change(self)
        return True

    async def ack(self, *, confirm: bool = True) -> None:
        """As `Delivery.ack`."""
        if not self._close():
            return
        self._link.counters.acked += 1
        if not confirm:
            await self._link.send(self._reply, b"+ACK")
            return
        deadline = asyncio.get_running_loop().time() + CONFIRM_TIMEOUT
        await self._replies.ask(
            self._reply, b"+ACK", answerer=JETSTREAM, deadline=deadline, repeat=True
        )

    async def nak(self, delay: float = 0.0) -> None:
        """As `Delivery.nak`."""
        if self._close():
            body = b" " + json.dumps({"delay": int(delay * 1e9)}).encode() if delay > 0 else b""
            await self._link.send(self._reply, b"-NAK" + body)

    async def in_progress(self) -> None:
        """As `Delivery.in_progress`."""
        if self.open and self._link.up:
            await self._link.send(self._reply, b"+WPI")

    def set_aside(self) -> None:
        """As `Delivery.set_aside`."""
        if self.open and not self.aside:
            self.aside = True
            self._on_change(self)

    async def term(self, reason: str) -> None:
        """As `Delivery.term`; the reason is cut to one short line, since it travels in an advisory."""
        if self._close():
            line = " ".join(reason.split())[:200]
            await self._link.send(self._reply, f"+TERM {line}".rstrip().encode(errors="replace"))
