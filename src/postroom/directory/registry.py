"""The registry of Agent Cards: the cards of live workers, signed, in a KV bucket that only this process writes.

One loop compares the bucket with the present cards and writes the difference, so that nothing races. `wake` starts a
round after a change; every few seconds a round looks for workers that fell silent (docs/architecture.md, Registry).
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from postroom.directory.card_signatures import sign_card
from postroom.directory.cards import Card
from postroom.identity.cardkey import CardKey
from postroom.observe.supervision import well
from postroom.protocol.intervals import CARD_REFRESH, PRESENCE_BEAT
from postroom.protocol.streams import CARDS_BUCKET, card_key
from postroom_a2a.nats.jetstream import JetStream
from postroom_a2a.nats.kv import Bucket

SHORTEST_INTERVAL = 1.0
"""Seconds between two writes of one card, so that a worker in a loop does not flood the disk."""


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
