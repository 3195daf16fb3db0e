"""Cards that workers announce: each is taken, or refused with an alert (docs/architecture.md, Registry).

The bus delivers only announcements whose reply subject proves their sender (`subjects.accepts_announcement`).
"""

from __future__ import annotations

import time
from collections.abc import Callable

from postroom.bus.port import Message, MessageBusProvider, Subscription
from postroom.errors import PostroomError
from postroom.observe import get_logger
from postroom.protocol.alerts import Alert, RaiseAlert

log = get_logger(__name__)

SUBJECT = "system.discovery.>"

REFUSED = "card-refused"  # kind of the alerts

ALERT_PAUSE = 60.0
"""Seconds between two alerts about one worker, so that one in a loop does not flood a person."""

MAX_ALERTED = 10_000
"""Workers whose last alert is remembered."""


class Announcements:
    """Hands the cards that workers announce to `take`.

    Args:
        take: gives worker (uid) the card in a payload; raises `PostroomError` for a card that it must not have.
    """

    def __init__(
        self,
        edge: MessageBusProvider,
        take: Callable[[str, bytes], None],
        alert: RaiseAlert,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._edge = edge
        self._take = take
        self._alert = alert
        self._clock = clock
        self._alerted: dict[str, float] = {}
        self._subscription: Subscription | None = None

    async def open(self) -> None:
        """Begin to listen."""
        self._subscription = await self._edge.subscribe(SUBJECT, self._heard)

    async def close(self) -> None:
        """Stop listening."""
        if self._subscription is not None:
            await self._subscription.close()

    async def _heard(self, message: Message) -> None:
        try:
            self._take(message.sender_uid, message.payload)
        except PostroomError as error:
            await self._refuse(message.sender_uid, error)
        else:
            if self._alerted.pop(message.sender_uid, None) is not None:
                await self._alert(Alert(REFUSED, "", message.sender_uid))

    async def _refuse(self, uid: str, error: PostroomError) -> None:
        log.warning("the card that %s announced was refused: %s", uid, error)
        now = self._clock()
        last = self._alerted.pop(uid, None)
        if last is not None and now - last < ALERT_PAUSE:
            self._alerted[uid] = last
            return
        self._alerted[uid] = now
        while len(self._alerted) > MAX_ALERTED:
            self._alerted.pop(next(iter(self._alerted)))
        await self._alert(
            Alert(REFUSED, f"announced a card that was refused: {error.message}", uid)
        )
