"""The registry of Agent Cards: the cards of live workers, signed, in a KV bucket that only this process writes.

One loop decides what the bucket should hold and writes the difference, so that nothing races: whoever knows that
something has changed wakes it, and it looks by itself every few seconds, for workers that fell silent
(docs/architecture.md, Registry).
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from postroom.bus.port import BusAdmin, MessageBusProvider
from postroom.control.presence import PresenceBoard
from postroom.control.roster import state_of
from postroom.control.run import Run
from postroom.directory.card_signatures import sign_card
from postroom.directory.cards import Card
from postroom.errors import PostroomError
from postroom.identity.cardkey import CardKey
from postroom.observe import get_logger
from postroom.protocol.presence import BEAT_INTERVAL, ONLINE
from postroom.protocol.streams import CARD_REFRESH, CARDS_BUCKET, card_key
from postroom.store.workers import RUNNING

log = get_logger(__name__)

SHORTEST_INTERVAL = 1.0
"""Seconds between two writes of one card: a worker that changes its mind in a loop must not flood the disk."""

DELETED = {"KV-Operation": "DEL"}
"""Headers of the record that deletes a key of a bucket (NATS ADR-8)."""


class Runs(Protocol):
    """What the registry needs of the workers."""

    def run_of(self, uid: str) -> Run | None:
        """The last start of a worker."""

    def runs(self) -> list[tuple[str, Run]]:
        """The last start of each worker."""


@dataclass(frozen=True, slots=True)
class Written:
    """What the bucket holds for one worker: its card without signature, None for a deletion, and since when."""

    card: Card | None
    at: float


class Registry:
    """Keeps the bucket as it should be.

    Args:
        bus: connection to core.
        admin: empties the bucket at the start: of what it holds then no worker lives.
        presence: who is there.
        runs: the workers and their cards.
        key: signs.
        org: whose cards these are.
        now: seconds since the epoch.
    """

    def __init__(
        self,
        bus: MessageBusProvider,
        admin: BusAdmin,
        presence: PresenceBoard,
        runs: Runs,
        key: CardKey,
        org: str,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._bus = bus
        self._admin = admin
        self._presence = presence
        self._runs = runs
        self._key = key
        self._org = org
        self._now = now
        self._written: dict[str, Written] = {}
        self._wanted = asyncio.Event()

    def wake(self) -> None:
        """Something that the bucket should show may have changed."""
        self._wanted.set()

    def online(self, uid: str) -> bool:
        """Whether the worker runs and has said so a moment ago."""
        run = self._runs.run_of(uid)
        state, _ = state_of(RUNNING, run, self._presence.of(uid), self._now())
        return state in ONLINE

    def signed(self, card: Card) -> Card:
        """`card` with the signature of this post room."""
        return sign_card(card, self._key)

    async def run(self) -> None:
        """Keep the bucket until cancelled. A bus that is away costs this round and nothing else."""
        emptied = False
        while True:
            self._wanted.clear()
            try:
                if not emptied:
                    await self._admin.purge(f"KV_{CARDS_BUCKET}", card_key(self._org, "*"))
                    emptied = True
                await self.sweep()
            except PostroomError as error:
                log.warning("the registry could not be written: %s", error)
            try:
                async with asyncio.timeout(BEAT_INTERVAL):
                    await self._wanted.wait()
            except TimeoutError:
                continue

    async def sweep(self) -> None:
        """Write and delete what is due.

        Raises:
            PostroomError: the bus did not take it; the next sweep tries again.
        """
        for uid, run in self._runs.runs():
            if self.online(uid):
                await self._keep(uid, run.card)
            else:
                await self._remove(uid)

    async def _remove(self, uid: str) -> None:
        present = self._written.get(uid)
        if present is None or present.card is None:
            return
        await self._bus.publish(card_key(self._org, uid), b"", metadata=DELETED)
        self._written[uid] = Written(None, self._now())

    async def _keep(self, uid: str, card: Card) -> None:
        present, now = self._written.get(uid), self._now()
        if present is not None:
            pause = CARD_REFRESH if present.card == card else SHORTEST_INTERVAL
            if now - present.at < pause:
                return
        payload = json.dumps(self.signed(card), ensure_ascii=False).encode()
        await self._bus.publish(card_key(self._org, uid), payload)
        self._written[uid] = Written(card, now)
