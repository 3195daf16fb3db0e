"""Keeps the projection up with the log.

A durable consumer only signals new records. The cursor in SQL decides what is folded; it moves in the same
transaction as the rows. A delivery that follows the cursor is folded directly. At a gap (a restart, a lost delivery)
the fold reads the log from the cursor on. So no record is skipped and none counts twice, whatever the consumer
remembers.

Order of steps: commit, tell waiters, append what follows (`After`), acknowledge. A crash between any two of them
repeats the rest.

A stream may come after another one. Then the fold first folds what that other stream holds when it meets a record.
What a record builds on was stored before it, so it is there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from postroom.bus.port import BusAdmin, Delivery, Message, MessageBusProvider
from postroom.errors import (
    BusDisconnected,
    EnvironmentFault,
    NoResponders,
    PostroomError,
    Refused,
    RequestTimeout,
    StateUnwritable,
    StoreLocked,
)
from postroom.observe import get_logger
from postroom.projection.changes import Changes
from postroom.projection.rules import Folded, Rules, fold
from postroom.protocol.streams import ConsumerSpec
from postroom.store.database import Database
from postroom_a2a.retry import Backoff

log = get_logger(__name__)

DURABLE = "postoffice"
"""Name of the post office's consumers."""

BATCH = 256
"""The most records in one transaction."""

MAX_ACK_PENDING = 4096

PASSING = (BusDisconnected, NoResponders, Refused, RequestTimeout, StateUnwritable, StoreLocked)
"""Faults that end by themselves, or when a person has made room."""

FIRST_RETRY = 0.1
LAST_RETRY = 5.0
"""The longest pause in seconds while the disk is full or the bus is away. Nothing is lost meanwhile, so attempts
never end.
"""

ORDER_WAIT = 30.0
"""Seconds that a stream waits for one before it until that counts as a fault; it goes on waiting."""


def consumer(stream: str) -> ConsumerSpec:
    """The post office's consumer on `stream`; it redelivers for ever, because a record must not be skipped."""
    return ConsumerSpec(stream, DURABLE, max_deliver=-1, max_ack_pending=MAX_ACK_PENDING)


@dataclass(slots=True)
class FoldStatistics:
    """Counters since the start; `fault` names what holds the fold up now, "" for nothing."""

    folded: int = 0
    ignored: int = 0
    poisoned: int = 0
    fault: str = ""


@dataclass(frozen=True, slots=True)
class After:
    """Work that follows the fold of a stream; doing it twice has no second effect.

    Attributes:
        settle: called with the delivered sequences that concern it, after their commit and before their
            acknowledgement.
        sweep: called once at the start, when the stream is folded up to its end; None for nothing.
        known: streams to fold up to their end before the sweep, or it would repeat what they hold.
        concerns: whether something may follow from that record.
    """

    settle: Callable[[Sequence[int]], Awaitable[None]]
    sweep: Callable[[], Awaitable[None]] | None = None
    known: tuple[str, ...] = ()
    concerns: Callable[[Message], bool] = lambda _: True


@dataclass(frozen=True, slots=True)
class Order:
    """The streams that a stream comes after.

    Attributes:
        builds: whether a record may build on them; other records are folded as they come.
    """

    streams: tuple[str, ...]
    builds: Callable[[Message], bool] = lambda _: True


def all_after(*parts: Mapping[str, Sequence[After]]) -> dict[str, list[After]]:
    """The work of several parts, in their order."""
    joined: dict[str, list[After]] = {}
    for part in parts:
        for stream, following in part.items():
            joined.setdefault(stream, []).extend(following)
    return joined


class Fold:
    """Folds all streams of the projection.

    Args:
        admin: reads the log and makes the consumers.
        after: stream to the work that follows its fold.
        order: stream to the streams before it; never in a circle.
    """

    def __init__(
        self,
        bus: MessageBusProvider,
        admin: BusAdmin,
        database: Database,
        changes: Changes,
        rules: Rules,
        after: Mapping[str, Sequence[After]],
        order: Mapping[str, Order] | None = None,
    ) -> None:
        self.bus = bus
        self.admin = admin
        self.database = database
        self.changes = changes
        self.rules = rules
        self.after = after
        self.order = order or {}
        self.statistics = FoldStatistics()
        self._streams = {name: _StreamFold(name, self) for name in rules}

    async def run(self) -> None:
        """Fold until cancelled.

        Raises:
            ExceptionGroup: holds an `EnvironmentFault` where log and database do not belong together.
        """
        async with asyncio.TaskGroup() as tasks:
            for stream in self._streams.values():
                tasks.create_task(stream.run(), name=f"fold-{stream.name}")

    async def ready(self, timeout: float) -> None:
        """Return when everything in the log at the start is folded, and all that follows from it is appended.

        Raises:
            TimeoutError: it took longer than `timeout` seconds.
        """
        async with asyncio.timeout(timeout):
            for stream in self._streams.values():
                await stream.swept.wait()

    async def reached(self, stream: str, sequence: int, timeout: float) -> None:
        """Return when `stream` is folded up to `sequence`.

        Raises:
            TimeoutError: it took longer than `timeout` seconds.
        """
        async with asyncio.timeout(timeout):
            await self.stream(stream).reached(sequence)

    def stream(self, name: str) -> _StreamFold:
        """The fold of that stream."""
        return self._streams[name]

    async def persistently(self, step: Callable[[], Awaitable[None]]) -> None:
        """Repeat `step` until it succeeds: wait out `PASSING` faults, raise others."""
        backoff = Backoff(FIRST_RETRY, LAST_RETRY)
        while True:
            try:
                await step()
            except PASSING as error:
                self.statistics.fault = str(error)
                log.warning("the fold waits: %s", error)
            else:
                self.statistics.fault = ""
                return
            await asyncio.sleep(backoff.next())


class _StreamFold:
    def __init__(self, name: str, fold: Fold) -> None:
        self.name = name
        self.caught_up = asyncio.Event()
        """folded up to the end that the log had at the start"""
        self.swept = asyncio.Event()
        """what followed from that is appended, too"""
        self._fold = fold
        self._position = 0
        self._moved = asyncio.Event()
        self._queue: asyncio.Queue[Delivery] = asyncio.Queue(BATCH)

    async def run(self) -> None:
        fold = self._fold
        await fold.persistently(self._catch_up)
        self.caught_up.set()
        for after in self._after:
            for name in after.known:
                await fold.stream(name).caught_up.wait()
            if after.sweep is not None:
                await fold.persistently(after.sweep)
        self.swept.set()
        await fold.persistently(lambda: fold.admin.ensure_consumer(consumer(self.name)))
        subscription = await fold.bus.consume(self.name, DURABLE, self._queue.put, batch=BATCH)
        try:
            while True:
                await self._take(await self._next_batch())
        finally:
            await subscription.close()

    @property
    def _after(self) -> Sequence[After]:
        return self._fold.after.get(self.name, ())

    async def reached(self, sequence: int) -> None:
        while self._position < sequence:
            self._moved.clear()
            await self._moved.wait()

    async def _next_batch(self) -> list[Delivery]:
        batch = [await self._queue.get()]
        while len(batch) < BATCH and not self._queue.empty():
            batch.append(self._queue.get_nowait())
        return batch

    async def _take(self, deliveries: Sequence[Delivery]) -> None:
        messages = [delivery.message for delivery in deliveries]
        await self._fold.persistently(lambda: self._project(messages))
        for after in self._after:
            seqs = [message.sequence for message in messages if after.concerns(message)]
            if seqs:
                await self._settle(after, seqs)
        await self._fold.persistently(lambda: _ack(deliveries))

    async def _settle(self, after: After, seqs: Sequence[int]) -> None:
        try:
            await self._fold.persistently(partial(after.settle, seqs))
        except EnvironmentFault:
            raise
        except Exception:
            # As in `_folded`: one bad record must not hold up what follows from the records of others.
            log.exception("what follows from %d records of %s failed", len(seqs), self.name)
            if len(seqs) == 1:
                self._fold.statistics.poisoned += 1
                return
            for seq in seqs:
                await self._settle(after, [seq])

    async def _project(self, messages: Sequence[Message]) -> None:
        fresh = {m.sequence: m for m in messages if m.sequence > self._position}
        if not fresh:
            return
        in_order = [fresh[sequence] for sequence in sorted(fresh)]
        last = self._position + len(in_order)
        if in_order[-1].sequence == last:
            await self._commit(in_order)
        else:
            await self._catch_up()

    async def _catch_up(self) -> None:
        """Fold the log from the cursor to its present end."""
        fold = self._fold
        self._position = await fold.database.read(lambda store: store.cursor(self.name))
        end = await fold.admin.last_sequence(self.name)
        if end < self._position:
            raise EnvironmentFault(
                f"the database is ahead of the log of {self.name}: they do not belong together",
                remedy="postroom admin rebuild",
            )
        batch: list[Message] = []
        async for message in fold.admin.replay(self.name, after=self._position):
            batch.append(message)
            if len(batch) == BATCH:
                await self._commit(batch)
                batch = []
        if batch:
            await self._commit(batch)
        self._move(end)  # the records before it were deleted, and will never come

    def _move(self, position: int) -> None:
        self._position = max(self._position, position)
        self._moved.set()

    async def _commit(self, batch: Sequence[Message]) -> None:
        await self._await_those_before(batch)
        done = await self._folded(batch)
        self._move(batch[-1].sequence)
        self._fold.statistics.folded += len(batch)
        self._fold.statistics.ignored += done.ignored
        self._fold.changes.publish(done.changes)

    async def _await_those_before(self, batch: Sequence[Message]) -> None:
        order = self._fold.order.get(self.name)
        if order is None or not any(map(order.builds, batch)):
            return
        for name in order.streams:
            last = await self._fold.admin.last_sequence(name)
            try:
                await self._fold.reached(name, last, ORDER_WAIT)
            except TimeoutError as error:
                raise RequestTimeout(f"{self.name} waits for {name} to be folded") from error

    async def _folded(self, batch: Sequence[Message]) -> Folded:
        write, rules = self._fold.database.write, self._fold.rules
        try:
            return await write(lambda store: fold(store, rules, self.name, batch))
        except PostroomError:
            raise
        except Exception:
            # A record that our rules did not foresee. It must not hold up the records of others: fold one at a time
            # to find it, report it, and pass over it.
            log.exception("a batch of %s could not be folded", self.name)
        return _joined([await self._folded_alone(record) for record in batch])

    async def _folded_alone(self, record: Message) -> Folded:
        write, rules = self._fold.database.write, self._fold.rules
        try:
            return await write(lambda store: fold(store, rules, self.name, [record]))
        except PostroomError:
            raise
        except Exception:
            log.exception("record %d of %s was passed over", record.sequence, self.name)
        self._fold.statistics.poisoned += 1
        await write(lambda store: store.set_cursor(self.name, record.sequence))
        return Folded((), 1)


async def _ack(deliveries: Iterable[Delivery]) -> None:
    for delivery in deliveries:
        await delivery.ack(
            confirm=False
        )  # lost on the way, but folded already: a redelivery has no effect


def _joined(parts: Iterable[Folded]) -> Folded:
    together = list(parts)
    changes = tuple(change for part in together for change in part.changes)
    return Folded(changes, sum(part.ignored for part in together))
