"""Keeps the projection up with the log.

Each stream is read from its cursor in SQL by a consumer that nobody acknowledges and that ends with its reader: the
cursor alone decides what is folded, and it moves in the same transaction as the rows. What all streams brought
meanwhile is folded in one transaction. A reader that lost its place begins again behind the last record that it
brought. So no record is skipped and none counts twice.

Order of steps: commit, tell waiters, append what follows (`Following`). A crash between any two of them repeats the
rest, or leaves it to the sweep at the start.

A stream may come after others. Of what arrived together their records are folded first. A record that builds on one
that is still on its way waits until those streams are folded as far as they were stored when it came.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from functools import partial

from postroom.bus.port import BusAdmin, Message
from postroom.errors import (
    BusDisconnected,
    DatabaseAway,
    EnvironmentFault,
    NoResponders,
    NotFound,
    PostroomError,
    Refused,
    RequestTimeout,
    StateUnwritable,
    StoreLocked,
    StreamBroken,
)
from postroom.observe import get_logger
from postroom.observe.supervision import failing, well
from postroom.projection.changes import Change, Changes
from postroom.projection.following import After, Following
from postroom.projection.intake import Intake, Mark
from postroom.projection.rules import (
    Folded,
    Rules,
    begets,
    fold_all,
    left_out,
    nobody,
    pass_over,
    passed_over,
)
from postroom.protocol.alerts import RaiseAlert
from postroom.protocol.streams import ConsumerSpec
from postroom.store.database import Database, Store
from postroom_a2a.retry import Backoff

__all__ = ["Fold", "FoldStatistics", "Order", "consumer"]

log = get_logger(__name__)

DURABLE = "postoffice"
"""Name of the post office's consumers. The fold had them, too: they are deleted, or the server would go on keeping
their state.
"""

FEW = 8
"""Records that take less time to fold than a change of threads."""

BATCH = 256
"""The most records of one stream in one transaction."""

MAX_ACK_PENDING = 4096

PASSING = (
    BusDisconnected,
    DatabaseAway,
    NoResponders,
    Refused,
    RequestTimeout,
    StateUnwritable,
    StoreLocked,
    StreamBroken,
)
"""Faults that end by themselves, or when a person has made room."""

WATCH = 5.0
"""Seconds between two looks for rows that the database has forgotten."""

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
    """Counters since the start; `faults` says what holds the fold up now, by part.

    Attributes:
        changes: what was folded, by kind and state of the change.
        delay: seconds from the storing of the oldest record of the last transaction to its commit.
        committed_at: when that was, 0 before the first.
    """

    folded: int = 0
    changes: Counter[tuple[str, str]] = field(default_factory=Counter)
    delay: float = 0.0
    committed_at: float = 0.0
    ignored: int = 0
    poisoned: int = 0
    transactions: int = 0
    faults: dict[str, str] = field(default_factory=dict)

    @property
    def fault(self) -> str:
        """What holds the fold up now, "" for nothing."""
        return next(iter(self.faults.values()), "")


@dataclass(frozen=True, slots=True)
class Order:
    """The streams that a stream comes after.

    Attributes:
        builds: whether a record waits for all that is in them. For others a rule says so, where it finds that what
            they build on is not there (`rules.Early`).
    """

    streams: tuple[str, ...]
    builds: Callable[[Message], bool] = lambda _: True


@dataclass(slots=True)
class _Stream:
    """One stream of the fold.

    Attributes:
        brought: sequence of the last record that its reader brought.
        position: sequence up to which it is folded.
        begun: it was read once, so that the log and the database belonged together then.
        caught_up: folded up to the end that the log had at the start.
        clear: sequence up to which its records need not wait for other streams.
        awaited: for the records up to `until`, how far the streams before it must be folded; None: it waits for none.
    """

    name: str
    brought: int = 0
    position: int = 0
    begun: bool = False
    caught_up: bool = False
    clear: int = 0
    awaited: Mapping[str, int] | None = None
    until: int = 0
    moved: asyncio.Event = field(default_factory=asyncio.Event)
    reader: asyncio.Task[None] | None = None


class Fold:
    """Folds all streams of the projection.

    Args:
        admin: reads the log.
        after: the parts whose work follows from the fold, in their order.
        order: stream to the streams before it; never in a circle.
        tell: raises an alert, or an error where that is to be tried again.
    """

    def __init__(
        self,
        admin: BusAdmin,
        database: Database,
        changes: Changes,
        rules: Rules,
        after: Sequence[After] = (),
        order: Mapping[str, Order] | None = None,
        *,
        tell: RaiseAlert = nobody,
    ) -> None:
        self.statistics = FoldStatistics()
        self._admin = admin
        self._database = database
        self._changes = changes
        self._rules = rules
        self._after = after
        self._order = order or {}
        self._tell = tell
        self._streams = {name: _Stream(name) for name in rules}
        self._intake = Intake(rules, BATCH)
        self._following = Following(
            after, partial(self._persistently, "what follows"), self._left_out, self._intake.poke
        )
        self._live = False
        # What this process has committed, where the database may forget it.
        self._stored: dict[str, int] = {}
        self._forgotten = False

    async def run(self) -> None:
        """Fold until cancelled.

        Raises:
            ExceptionGroup: holds an `EnvironmentFault` where log and database do not belong together.
        """
        try:
            async with asyncio.TaskGroup() as tasks:
                await self._persistently("the start", self._begin)
                for stream in self._streams.values():
                    self._read(stream, tasks)
                tasks.create_task(self._fold(tasks), name="fold")
                tasks.create_task(self._following.run(), name="fold-following")
                if self._database.place.forgets:
                    tasks.create_task(self._watch(), name="fold-watch")
        finally:
            for stream in self._streams.values():
                stream.awaited = None  # a timer that is still set finds nothing to do
            if self._following.unsaved:
                with suppress(PostroomError):
                    await self._database.write(partial(self._find, changes=()), accounts=False)

    async def ready(self, timeout: float) -> None:
        """Return when everything in the log at the start is folded, and all that follows from it is appended.

        Raises:
            TimeoutError: it took longer than `timeout` seconds.
        """
        async with asyncio.timeout(timeout):
            await self._following.swept.wait()

    async def reached(self, stream: str, sequence: int, timeout: float) -> None:
        """Return when `stream` is folded up to `sequence`.

        Raises:
            TimeoutError: it took longer than `timeout` seconds.
        """
        one = self._streams[stream]
        if one.position >= sequence:
            return
        async with asyncio.timeout(timeout):
            while one.position < sequence:
                one.moved.clear()
                await one.moved.wait()

    @property
    def positions(self) -> dict[str, int]:
        """How far each stream is folded."""
        return {stream.name: stream.position for stream in self._streams.values()}

    async def settled(self, timeout: float) -> None:
        """Return when all that follows from what is folded is appended.

        Raises:
            TimeoutError: it took longer than `timeout` seconds.
        """
        async with asyncio.timeout(timeout):
            await self._following.idle.wait()

    async def _persistently(self, part: str, step: Callable[[], Awaitable[object]]) -> None:
        """Repeat `step` until it succeeds: wait out `PASSING` faults, raise others."""
        backoff = Backoff(FIRST_RETRY, LAST_RETRY)
        while True:
            try:
                await step()
            except PASSING as error:
                self._note(part, error)
            else:
                self._over(part)
                return
            await asyncio.sleep(backoff.next())

    def _note(self, part: str, error: PostroomError) -> None:
        self.statistics.faults[part] = str(error)
        log.warning("the fold waits: %s", error)
        failing(error)

    def _over(self, part: str) -> None:
        if self.statistics.faults.pop(part, None) and not self.statistics.faults:
            well()

    async def _left_out(self, error: Exception) -> None:
        self.statistics.poisoned += 1
        await self._persistently("an alert", partial(self._tell, left_out(error)))

    # ── reading ─────────────────────────────────────────────────────────────────────────────────────────

    async def _begin(self) -> None:
        await self._database.write(self._cursors, accounts=False)
        await asyncio.gather(
            *(self._admin.delete_consumer(name, DURABLE) for name in self._streams)
        )

    def _cursors(self, store: Store) -> None:
        for stream in self._streams.values():
            stream.brought = stream.position = store.cursor(stream.name)
            self._stored[stream.name] = stream.position
        for part in self._after:
            part.begin(store)

    def _read(self, stream: _Stream, tasks: asyncio.TaskGroup) -> None:
        """Begin to read a stream, anew if a reader is at it."""
        if stream.reader is not None:
            stream.reader.cancel()
        stream.reader = tasks.create_task(self._bring(stream), name=f"fold-{stream.name}")

    async def _bring(self, stream: _Stream) -> None:
        """Bring the records of a stream, for ever."""
        backoff = Backoff(FIRST_RETRY, LAST_RETRY)
        while True:
            before = stream.brought
            try:
                await self._bring_on(stream)
            except StreamBroken as error:
                log.info("%s is read again from %d on: %s", stream.name, stream.brought, error)
            # NotFound: a server that has just started may not know the stream yet.
            except (*PASSING, NotFound) as error:
                self._note(stream.name, error)
            except EnvironmentFault as error:
                if not stream.begun:
                    raise
                self._note(stream.name, error)
            if stream.brought > before:
                backoff = Backoff(FIRST_RETRY, LAST_RETRY)
            await asyncio.sleep(backoff.next())

    async def _bring_on(self, stream: _Stream) -> None:
        end = await self._admin.last_sequence(stream.name)
        if end < stream.brought:
            raise EnvironmentFault(
                f"the database is ahead of the log of {stream.name}: they do not belong together",
                remedy="postroom admin rebuild",
            )
        stream.begun = True
        told = False
        async with aclosing(self._admin.follow(stream.name, after=stream.brought)) as found:
            async for record in found:
                self._over(stream.name)
                if record is not None:
                    await self._intake.put(stream.name, record)
                    stream.brought = record.sequence
                elif not told:
                    told = True
                    # Records that were deleted before this will never come.
                    self._intake.mark(stream.name, partial(self._reach, stream, end))

    def _reach(self, stream: _Stream, end: int) -> None:
        self._move(stream, end)
        stream.caught_up = True

    def _move(self, stream: _Stream, position: int) -> None:
        if position > stream.position:
            stream.position = position
            stream.moved.set()

    # ── folding ─────────────────────────────────────────────────────────────────────────────────────────

    async def _fold(self, tasks: asyncio.TaskGroup) -> None:
        """Fold what has come, for ever."""
        while True:
            batches, marks = await self._intake.take()
            done = Folded()
            if not self._forgotten and (batches or self._following.unsaved):
                done = await self._committed(batches)
            if self._forgotten:
                await self._read_again(tasks)
                continue
            for name, first in done.early.items():
                await self._hold_back(name, first, batches[name], marks.pop(name, ()), tasks)
            for each in marks.values():
                for mark in each:
                    mark()
            self._release()
            if not self._live and all(stream.caught_up for stream in self._streams.values()):
                # What was folded until now is swept, what comes from now on is found by the fold.
                self._live = True
                self._following.sweep()

    async def _committed(self, batches: Mapping[str, Sequence[Message]]) -> Folded:
        done = Folded()
        found: Sequence[Sequence[object]] = ()

        async def commit() -> None:
            nonlocal done, found
            done, found = await self._folded(batches)

        await self._persistently("SQL", commit)
        self._count(batches, done)
        for name, position in done.positions.items():
            self._move(self._streams[name], position)
            self._stored[name] = position
        self._changes.publish(done.changes)
        self._following.add(found)
        return done

    def _count(self, batches: Mapping[str, Sequence[Message]], done: Folded) -> None:
        statistics = self.statistics
        statistics.folded += sum(map(len, batches.values()))
        statistics.ignored += done.ignored
        for change in done.changes:
            statistics.changes[change.kind, change.state] += 1
        if stored := [records[0].timestamp for records in batches.values() if records]:
            statistics.committed_at = time.time()
            statistics.delay = max(0.0, statistics.committed_at - min(stored))

    async def _folded(
        self, batches: Mapping[str, Sequence[Message]]
    ) -> tuple[Folded, Sequence[Sequence[object]]]:
        try:
            return await self._write(batches)
        except PostroomError:
            raise
        except Exception:
            # A record that our rules did not foresee. It must not hold up the records of others: fold one at a time
            # to find it, report it, and pass over it.
            log.exception("records of %s could not be folded together", ", ".join(batches))
        together, found = Folded(), [[] for _ in self._after]
        for name in self._rules:
            for record in batches.get(name, ()):
                done, more = await self._folded_alone(name, record)
                together = _joined(together, done)
                found = [[*some, *new] for some, new in zip(found, more, strict=True)]
                if done.early:
                    break
        return together, found

    async def _folded_alone(
        self, name: str, record: Message
    ) -> tuple[Folded, Sequence[Sequence[object]]]:
        try:
            return await self._write({name: [record]})
        except PostroomError:
            raise
        except Exception as error:
            log.exception("record %d of %s was passed over", record.sequence, name)
            told = passed_over(name, record.sequence, error)
        # First the alert: after a crash in between the record is passed over once more, with the same alert.
        if not begets(name, record):
            await self._persistently("an alert", partial(self._tell, told))
        self.statistics.poisoned += 1
        await self._database.fold(partial(pass_over, name, record.sequence))
        return Folded((), 1, {name: record.sequence}), [[] for _ in self._after]

    async def _write(
        self, batches: Mapping[str, Sequence[Message]]
    ) -> tuple[Folded, Sequence[Sequence[object]]]:
        self.statistics.transactions += 1

        def work(store: Store) -> tuple[Folded, Sequence[Sequence[object]]]:
            if self._has_forgotten(store, batches):
                return Folded(), [[] for _ in self._after]
            done = fold_all(store, self._rules, batches, self._waits)
            return done, self._find(store, done.changes)

        few = sum(map(len, batches.values())) <= FEW
        return await self._database.fold(work, few=few)

    def _find(self, store: Store, changes: Sequence[Change]) -> Sequence[Sequence[object]]:
        if not self._live:
            return [[] for _ in self._after]
        return [part.find(store, changes) for part in self._after]

    # ── a database that forgets ─────────────────────────────────────────────────────────────────────────

    def _has_forgotten(self, store: Store, streams: Iterable[str]) -> bool:
        """Whether a crash of the database has undone what this fold has committed to it."""
        if self._database.place.forgets:
            self._forgotten = any(store.cursor(name) < self._stored[name] for name in streams)
        return self._forgotten

    async def _watch(self) -> None:
        """Look for ever whether something is gone: its streams may bring nothing new for a long time."""
        while True:
            await asyncio.sleep(WATCH)
            with suppress(*PASSING):
                if await self._database.fold(lambda store: self._has_forgotten(store, self._rules)):
                    self._intake.poke()

    async def _read_again(self, tasks: asyncio.TaskGroup) -> None:
        """Fold the streams again from where the database has them."""
        log.warning("the database has forgotten what was folded last; it is folded again")
        for stream in self._streams.values():
            if stream.reader is not None:
                stream.reader.cancel()
        await self._persistently("SQL", self._recall)
        for stream in self._streams.values():
            self._intake.drop(stream.name)
            stream.awaited = None
            self._read(stream, tasks)

    async def _recall(self) -> None:
        self._forgotten = False
        await self._database.write(self._cursors, accounts=False)

    # ── order ───────────────────────────────────────────────────────────────────────────────────────────

    def _waits(self, stream: str, record: Message, early: bool) -> bool:
        order = self._order.get(stream)
        if order is None or record.sequence <= self._streams[stream].clear:
            return False
        return early or order.builds(record)

    async def _hold_back(
        self,
        name: str,
        first: int,
        batch: Sequence[Message],
        marks: Sequence[Mark],
        tasks: asyncio.TaskGroup,
    ) -> None:
        """Keep back what came too early, until the streams before it are folded as far as they are stored now."""
        stream = self._streams[name]
        left = [record for record in batch if record.sequence >= first]
        self._intake.give_back(name, left, marks)
        stream.until = left[-1].sequence

        async def ask() -> None:
            # The records that are kept back were stored before this question.
            before = self._order[name].streams
            stream.awaited = {each: await self._admin.last_sequence(each) for each in before}

        await self._persistently(name, ask)
        asyncio.get_running_loop().call_later(ORDER_WAIT, self._late, stream, stream.until, tasks)

    def _late(self, stream: _Stream, until: int, tasks: asyncio.TaskGroup) -> None:
        """Say that a stream still waits, and read those before it anew: the records may have been deleted."""
        if stream.awaited is None or stream.until != until:
            return
        missing = [name for name, last in stream.awaited.items() if self._behind(name, last)]
        names = ", ".join(missing)
        self._note(stream.name, RequestTimeout(f"{stream.name} waits for {names} to be folded"))
        for name in missing:
            self._read(self._streams[name], tasks)
        asyncio.get_running_loop().call_later(ORDER_WAIT, self._late, stream, until, tasks)

    def _behind(self, name: str, last: int) -> bool:
        return self._streams[name].position < last

    def _release(self) -> None:
        """Fold on with the streams that need not wait any more."""
        for stream in self._streams.values():
            awaited = stream.awaited
            if awaited is not None and not any(self._behind(*each) for each in awaited.items()):
                stream.awaited, stream.clear = None, stream.until
                self._over(stream.name)
                self._intake.unblock(stream.name)


def _joined(one: Folded, other: Folded) -> Folded:
    return Folded(
        (*one.changes, *other.changes),
        one.ignored + other.ignored,
        {**one.positions, **other.positions},
        {**one.early, **other.early},
    )
