"""The registry of Agent Cards: the cards of live workers, signed, in a KV bucket that only this process writes.

One loop compares the bucket with the present cards and writes the difference, so that nothing races. `wake` starts a
round after a change; every few seconds a round looks for workers that fell silent (docs/architecture.md, Registry).
A card that a worker announces is taken, or refused with an alert. The bus delivers only announcements whose reply
subject proves their sender (`subjects.accepts_announcement`).
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from postroom.bus.port import Message, MessageBusProvider, Subscription
from postroom.directory.card_signatures import sign_card
from postroom.directory.cards import Card
from postroom.errors import PostroomError
from postroom.identity.cardkey import CardKey
from postroom.observe import get_logger
from postroom.observe.supervision import well
from postroom.protocol.alerts import Alert, RaiseAlert
from postroom.protocol.intervals import CARD_REFRESH, PRESENCE_BEAT
from postroom.protocol.streams import CARDS_BUCKET, card_key
from postroom_a2a.nats.jetstream import JetStream
from postroom_a2a.nats.kv import Bucket

log = get_logger(__name__)

SHORTEST_INTERVAL = 1.0
"""Seconds between two writes of one card, so that a worker in a loop does not flood the disk."""

SUBJECT = "system.discovery.>"

REFUSED = "card-refused"  # kind of the alerts

ALERT_PAUSE = 60.0
"""Seconds between two alerts about one worker, so that one in a loop does not flood a person."""

MAX_ALERTED = 10_000
"""Workers whose last alert is remembered."""


@dataclass(frozen=True, slots=True)
class Written:
    """What the bucket holds for one worker, and since when; the card has no signature, and is None once deleted."""

    card: Card | None
    at: float


class CardRegistry:
    """Writes the bucket.

    Args:
        cards: returns the card of each worker that is online, None for each that is no longer.
    """

    def __init__(
        self,
        js: JetStream,
        cards: Callable[[], Mapping[str, Card | None]],
        key: CardKey,
        org: str,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._bucket = Bucket(js, CARDS_BUCKET)
        self._cards = cards
        self._key = key
        self._org = org
        self._now = now
        self._written: dict[str, Written] = {}
        self._wanted = asyncio.Event()
        self._emptied = False

    def wake(self) -> None:
        """Start a round: a card may have changed."""
        self._wanted.set()

    def signed(self, card: Card) -> Card:
        """`card` with the signature of this post room."""
        return sign_card(card, self._key)

    async def run(self) -> None:
        """Keep the bucket until cancelled."""
        while True:
            self._wanted.clear()
            if not self._emptied:
                # The workers whose cards an earlier process left have ended with it.
                await self._bucket.clear(card_key(self._org, "*"))
                self._emptied = True
            await self.sweep()
            well()
            try:
                async with asyncio.timeout(PRESENCE_BEAT):
                    await self._wanted.wait()
            except TimeoutError:
                continue

    async def sweep(self) -> None:
        """Write and delete what differs."""
        for uid, card in self._cards().items():
            if card is None:
                await self._remove(uid)
            else:
                await self._keep(uid, card)

    async def _remove(self, uid: str) -> None:
        present = self._written.get(uid)
        if present is None or present.card is None:
            return
        await self._bucket.delete(card_key(self._org, uid))
        self._written[uid] = Written(None, self._now())

    async def _keep(self, uid: str, card: Card) -> None:
        present, now = self._written.get(uid), self._now()
        if present is not None:
            pause = CARD_REFRESH if present.card == card else SHORTEST_INTERVAL
            if now - present.at < pause:
                return
        payload = json.dumps(self.signed(card), ensure_ascii=False).encode()
        await self._bucket.put(card_key(self._org, uid), payload)
        self._written[uid] = Written(card, now)


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
