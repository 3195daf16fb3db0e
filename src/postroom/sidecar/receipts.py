"""Receipts that the worker sets on messages to it: it alone knows what it was handed and has seen."""

from __future__ import annotations

import time
from collections.abc import Callable

from postroom.protocol import subjects
from postroom.protocol.ids import message_id
from postroom.protocol.receipts import Receipt, State
from postroom.sidecar.wire import Wire, publish_durably


class Receipts:
    """Publishes receipts toward senders; the same report twice is stored once."""

    def __init__(
        self, wire: Wire, own: str, secret: bytes, now: Callable[[], float] = time.time
    ) -> None:
        self._wire = wire
        self._own = own
        self._secret = secret
        self._now = now

    async def report(self, message: str, sender: str, state: State, reason: str = "") -> None:
        """Report that the message of `sender` reached `state`; with a reason for people why it stays there.

        Raises:
            PostroomError: it could not be stored.
        """
        receipt = Receipt(message, self._own, state, self._now(), reason)
        said = f"{state}:{reason}" if reason else state
        await publish_durably(
            self._wire,
            subjects.receipts(sender, self._own),
            receipt.encode(),
            id=message_id(self._secret, sender, f"receipt:{message}:{said}"),
        )
