"""The registry of Agent Cards in a KV bucket, shared with every peer of `a2a-nats/1` (docs/binding.md, Registry).

The registry keeps cards as JSON, written and read by a `Codec`, so it needs no type of A2A.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any, Generic, Literal, Self, TypeVar

from postroom_a2a.binding.subjects import NAMESPACE, card_key
from postroom_a2a.bounds import MAX_CARD_BYTES
from postroom_a2a.ecma_json import dumps, loads
from postroom_a2a.errors import (
    Conflict,
    LostUpdate,
    MessageTooLarge,
    PostroomError,
    ProtocolViolation,
)
from postroom_a2a.nats.jetstream import JetStream
from postroom_a2a.nats.kv import Bucket, BucketEntry, BucketSettings

__all__ = ["CardChange", "Registered", "Registry"]

BUCKET = "A2A_AGENT_CARDS"
TTL = 60.0

CLOSE_TIMEOUT = 10.0
"""Seconds that `close` waits for a refresh on its way."""

Record = dict[str, Any]
"""An Agent Card as JSON."""

Card = TypeVar("Card")

Liveness = Literal["live", "unknown"]
"""A card that expires without its agent is "live"; a card that stays says nothing of its agent."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Codec(Generic[Card]):
    """Writes and reads cards.

    Attributes:
        read: raises ProtocolViolation for JSON that is not a card.
    """

    write: Callable[[Card], Record]
    read: Callable[[Record], Card]


PLAIN: Codec[Record] = Codec(dict, dict)
"""Cards as plain JSON."""


@dataclass(frozen=True, slots=True)
class Registered(Generic[Card]):
    """A registered card; a change that must not overwrite another one names its `revision`."""

    agent_id: str
    card: Card
    revision: int
    liveness: Liveness


@dataclass(frozen=True, slots=True)
class CardChange(Generic[Card]):
    """A card that a watch saw come, change, or go (`registered` is None)."""

    agent_id: str
    registered: Registered[Card] | None


@dataclass(slots=True)
class _Published:
    payload: bytes
    revision: int


class Registry(Generic[Card]):
    """Cards of one namespace; an async context manager that removes on exit what it published.

    Args:
        ttl: seconds until a card without a refresh expires; 0 for cards that stay.
        compatible: take ids and namespaces that the token rule changes, as the TypeScript package does; two agents
            may then have one key.
        on_error: called with an error in the background; None logs it.
    """

    def __init__(
        self,
        bucket: Bucket,
        codec: Codec[Card],
        *,
        namespace: str = NAMESPACE,
        ttl: float = TTL,
        compatible: bool = False,
        on_error: Callable[[Exception], None] | None = None,
    ) -> None:
        self.ttl = ttl if bucket.has_ttl else 0.0
        self._bucket = bucket
        self._codec = codec
        self._compatible = compatible
        self._namespace = namespace
        self._stem = self._key("_").removesuffix("_")
        self._report = on_error or _logged
        self._published: dict[str, _Published] = {}
        self._refresher: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()
        if ttl and not bucket.has_ttl:
            _log.warning(
                "keys of the bucket %s cannot expire: cards of stopped agents stay", bucket.name
            )

    @classmethod
    async def open(
        cls,
        js: JetStream,
        codec: Codec[Card],
        *,
        bucket: str = BUCKET,
        settings: BucketSettings | None = None,
        create: bool = True,
        **options: Any,
    ) -> Self:
        """A registry in the bucket of that name; without `create`, a missing bucket is an error.

        Raises:
            As `Bucket.open`.
        """
        settings = settings or BucketSettings(key_ttl=options.get("ttl", TTL) > 0)
        return cls(await Bucket.open(js, bucket, settings, create=create), codec, **options)

    async def __aenter__(self) -> Self:
        """Nothing to open."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """As `close`."""
        await self.close()

    async def close(self) -> None:
        """Remove the cards published here, unless another writer replaced them; report a failure."""
        refresher, self._refresher = self._refresher, None
        if refresher is not None:
            self._closing.set()  # a cancellation could leave a write half done
            await asyncio.wait([refresher], timeout=CLOSE_TIMEOUT)
            refresher.cancel()
        published, self._published = self._published, {}
        for key, mine in published.items():
            try:
                await self._bucket.purge(key, revision=mine.revision)
            except LostUpdate:
                pass
            except PostroomError as error:
                self._report(error)

    # ── writing ──────────────────────────────────────────────────────────────────────────────────────────

    async def publish(
        self, card: Card, agent_id: str, *, expected_revision: int | None = None
    ) -> int:
        """Register a card, and keep it registered until `close` or `remove`.

        Args:
            agent_id: letters, digits, `-` and `_`, unless the registry is `compatible`.
            expected_revision: of the card to replace; 0 for none; None to replace any.

        Returns:
            The revision of the new card.

        Raises:
            InvalidName: the token rule would change the id.
            MessageTooLarge: the card is over 64 KiB.
            LostUpdate: `expected_revision` is not the last one.
            As `Bucket.put`.
        """
        key = self._key(agent_id)
        payload = dumps(self._codec.write(card))
        if len(payload) > MAX_CARD_BYTES:
            raise MessageTooLarge(
                f"the card has {len(payload)} bytes, {MAX_CARD_BYTES} are allowed"
            )
        if expected_revision is None:
            revision = await self._bucket.put(key, payload, ttl=self.ttl)
        elif expected_revision == 0:
            revision = await self._bucket.create(key, payload, ttl=self.ttl)
        else:
            revision = await self._bucket.update(key, payload, expected_revision, ttl=self.ttl)
        self._published[key] = _Published(payload, revision)
        if self.ttl and self._refresher is None:
            self._refresher = asyncio.create_task(self._refresh(), name="card-registry")
            self._refresher.add_done_callback(self._ended)
        return revision

    async def remove(self, agent_id: str, *, expected_revision: int | None = None) -> None:
        """Remove a card, whoever published it; a missing card is no error.

        If that fails, a card published here is kept alive as before.

        Raises:
            LostUpdate: `expected_revision` is not the last one.
            As `Bucket.put`.
        """
        key = self._key(agent_id)
        mine = self._published.pop(key, None)  # a refresh meanwhile would put the card back
        try:
            await self._bucket.purge(key, revision=expected_revision)
        except BaseException:
            if mine is not None:
                self._published.setdefault(key, mine)
            raise

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────────

    async def resolve(self, agent_id: str) -> Registered[Card] | None:
        """The card of an agent; None for none.

        Raises:
            ProtocolViolation: the registered value is not a card.
            As `Bucket.get`.
        """
        entry = await self._bucket.get(self._key(agent_id))
        return None if entry is None else self._read(entry)

    async def list(self) -> Sequence[Registered[Card]]:
        """Every card of the namespace; a value that is not a card is left out and reported.

        Raises:
            As `Bucket.watch`.
        """
        return [each for _, _, each in self._readable(await self._bucket.entries(self._filter))]

    async def find(self, skill: str) -> Sequence[Registered[Card]]:
        """Cards with a skill of that id, name or tag, in any case.

        Raises:
            As `list`.
        """
        entries = self._readable(await self._bucket.entries(self._filter))
        return [each for _, record, each in entries if has_skill(record, skill)]

    async def watch(self) -> AsyncGenerator[CardChange[Card] | None, None]:
        """The registered cards, then None once, then each change; close the generator to end the watch.

        A refresh is not a change. A value that is not a card is left out and reported.

        Raises:
            As `Bucket.watch`.
        """
        shown: dict[str, bytes] = {}
        async with aclosing(self._bucket.watch(self._filter)) as entries:
            async for entry in entries:
                if entry is None:
                    yield None
                elif entry.deleted:
                    if shown.pop(entry.key, None) is not None:
                        yield CardChange(self._agent(entry), None)
                elif shown.get(entry.key) != entry.value:
                    for _, _, registered in self._readable([entry]):
                        shown[entry.key] = entry.value
                        yield CardChange(registered.agent_id, registered)

    # ── keeping alive ────────────────────────────────────────────────────────────────────────────────────

    async def _refresh(self) -> None:
        while True:
            pause = self.ttl / 3 * random.uniform(0.8, 1.0)  # noqa: S311
            with suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), pause)
            if self._closing.is_set():
                return
            for key, mine in list(self._published.items()):
                try:
                    await self._renew(key, mine)
                except PostroomError as error:
                    self._report(error)

    async def _renew(self, key: str, mine: _Published) -> None:
        revision = mine.revision
        for _ in range(3):
            if self._published.get(key) is not mine:  # it was published again, or removed
                return
            with suppress(LostUpdate):
                if revision:
                    written = self._bucket.update(key, mine.payload, revision, ttl=self.ttl)
                else:
                    written = self._bucket.create(key, mine.payload, ttl=self.ttl)
                mine.revision = await written
                return
            entry = await self._bucket.get(key, fresh=True)
            if entry is not None and entry.value != mine.payload:
                self._published.pop(key, None)
                raise Conflict(
                    f"another agent registered a card as {key!r}; this agent's card is gone"
                )
            # It expired while the connection was down, or a replica wrote the same card.
            revision = entry.revision if entry else 0

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            ended = RuntimeError("the refresh of cards ended")
            self._report(error if isinstance(error, Exception) else ended)

    # ── keys and cards ───────────────────────────────────────────────────────────────────────────────────

    @property
    def _filter(self) -> str:
        return f"{self._stem}*"

    def _key(self, agent_id: str) -> str:
        return card_key(agent_id, self._namespace, compatible=self._compatible)

    def _agent(self, entry: BucketEntry) -> str:
        return entry.key.removeprefix(self._stem)

    def _readable(
        self, entries: Iterable[BucketEntry]
    ) -> Sequence[tuple[BucketEntry, Record, Registered[Card]]]:
        found = []
        for entry in entries:
            try:
                found.append((entry, _record(entry), self._read(entry)))
            except ProtocolViolation as error:
                self._report(error)
        return found

    def _read(self, entry: BucketEntry) -> Registered[Card]:
        card = self._codec.read(_record(entry))
        return Registered(
            self._agent(entry), card, entry.revision, "live" if entry.ttl else "unknown"
        )


def has_skill(card: Record, skill: str) -> bool:
    """Whether a card of any version, even a malformed one, has a skill of that id, name or tag."""
    wanted = skill.casefold()
    skills = card.get("skills")
    for each in skills if isinstance(skills, list) else ():
        if isinstance(each, dict):
            tags = each.get("tags")
            words = (each.get("id"), each.get("name"), *(tags if isinstance(tags, list) else ()))
            if any(isinstance(word, str) and word.casefold() == wanted for word in words):
                return True
    return False


def _record(entry: BucketEntry) -> Record:
    if len(entry.value) > MAX_CARD_BYTES:
        raise ProtocolViolation(
            f"the card {entry.key!r} has {len(entry.value)} bytes; {MAX_CARD_BYTES} are allowed"
        )
    try:
        record = loads(entry.value)
    except ValueError as error:
        raise ProtocolViolation(f"the card {entry.key!r} is not JSON") from error
    if not isinstance(record, dict):
        raise ProtocolViolation(f"the card {entry.key!r} is not a JSON object")
    return record


def _logged(error: Exception) -> None:
    _log.warning(
        "card registry: %s", error, exc_info=not isinstance(error, PostroomError) and error
    )
