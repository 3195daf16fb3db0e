"""Receipts of messages to this worker, and the acknowledgements that follow a confirmation."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from postroom.bus.port import Delivery
from postroom.errors import PostroomError
from postroom.observe import get_logger
from postroom.protocol import subjects
from postroom.protocol.ids import message_id
from postroom.protocol.receipts import Receipt, State
from postroom.protocol.streams import redelivery_delay
from postroom.sidecar.bus import BusClient, publish_durably


class Receipts:
    """Publishes receipts to senders; the same report twice is stored once."""

    def __init__(
        self, bus: BusClient, own: str, secret: bytes, now: Callable[[], float] = time.time
    ) -> None:
        self._bus = bus
        self._own = own
        self._secret = secret
        self._now = now

    async def report(self, message: str, sender: str, state: State, reason: str = "") -> None:
        """Report that the message of `sender` reached `state`; `reason` tells people why it stays there."""
        receipt = Receipt(message, self._own, state, self._now(), reason)
        said = f"{state}:{reason}" if reason else state
        await publish_durably(
            self._bus,
            subjects.receipts(sender, self._own),
            receipt.encode(),
            id=message_id(self._secret, sender, f"receipt:{message}:{said}"),
        )


_log = get_logger(__name__)


class Confirmations:
    """The confirmed messages of one worker whose deliveries are still open.

    Args:
        report: stores a receipt; False if it failed.
        start: runs work in the background.
    """

    def __init__(
        self,
        report: Callable[[str, str, State], Awaitable[bool]],
        start: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self._report = report
        self._start = start
        self._deliveries: dict[str, Delivery] = {}
        self._all_done = asyncio.Event()
        self._all_done.set()

    def begin(
        self, message_id: str, sender: str, delivery: Delivery, *, told: bool = False
    ) -> None:
        """Report a message as seen, unless its sender was `told`, then acknowledge its delivery."""
        under_way = message_id in self._deliveries
        self._deliveries[message_id] = delivery
        if not under_way:
            self._all_done.clear()
            self._start(self._report_and_ack(message_id, sender, told=told))

    async def _report_and_ack(self, message_id: str, sender: str, *, told: bool) -> None:
        attempt = 0
        try:
            # While the delivery is open the bus does not repeat it, so no later one would report it.
            while not told and not await self._report(message_id, sender, State.SEEN):
                attempt += 1
                await asyncio.sleep(redelivery_delay(attempt))
            await self._acknowledge(message_id)
        finally:
            del self._deliveries[message_id]
            if not self._deliveries:
                self._all_done.set()

    async def _acknowledge(self, message_id: str) -> None:
        """Acknowledge the latest delivery, and each one that replaces it meanwhile."""
        done: Delivery | None = None
        while (delivery := self._deliveries[message_id]) is not done:
            done = delivery
            try:
                await delivery.ack()
            except PostroomError as error:
                # The bus delivers it again, and the journal leads back here.
                _log.warning("message %s is seen, but not acknowledged: %s", message_id, error)

    async def done(self, timeout: float) -> None:
        """Wait until all are acknowledged."""
        try:
            async with asyncio.timeout(timeout):
                await self._all_done.wait()
        except TimeoutError:
            _log.warning(
                "%d confirmed messages were not acknowledged in time", len(self._deliveries)
            )
