"""Shortens the log, and gives up what has ended and is older, or more, than the user keeps.

A record is deleted when its package says that it is over, and a verified snapshot on disk holds its effect: its
sequence is at or before the snapshot's cursor of its stream. Until then the log grows. A full stream refuses new
records and never drops old ones.

What is given up goes from the rows first. The snapshot that `Retention` takes next does not hold it, and what is at or
before a snapshot's cursors is never folded again: so neither a rebuild nor an older database brings it back.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from postroom.bus.port import BusAdmin, Message
from postroom.observe import get_logger
from postroom.observe.supervision import well
from postroom.settings.keeping import DAY, Keeping
from postroom.store import copying, pruning, snapshot
from postroom.store.database import Database, Store
from postroom.store.ports import Ended
from postroom.store.pruning import Kind
from postroom.store.snapshot import SnapshotHeader

log = get_logger(__name__)

INTERVAL = 3600.0
"""Seconds between two runs."""

SHARE = 0.01
"""The most of the time that runs may take: a large database is copied less often."""

KEEP = 86400.0
"""Seconds that final records are kept; more than the server's window of de-duplication."""

SCAN = 5000
"""Records of one stream that one step examines."""

JUDGED = 250
"""Records that are judged in one read of the database."""

PAGE = 250
"""Things that one transaction examines and gives up."""

ORDER = ("tasks", "events", "worker-events", "messages", "posts", "announcements")
"""Tasks take their requests along, which are messages."""

LEAST = DAY
"""Seconds that everything is kept at least: a message that is sent again under its key is known that long."""


REMEMBERED = 366 * DAY
"""Seconds for which it is known that a message was sent, after it was given up: who sends it again under its key is
told so.
"""


@dataclass(slots=True)
class Pruned:
    """What goes, or went, of one kind and project; `oldest` is the instant at which the oldest ended."""

    kind: str
    project: str
    number: int = 0
    size: int = 0
    oldest: float = 0.0

    def count(self, row: Ended) -> None:
        """Count `row`."""
        self.number += row.number
        self.size += row.size
        self.oldest = min(self.oldest or row.ended_at, row.ended_at)

    def with_(self, other: Pruned | None) -> Pruned:
        """Both together: of one kind and project."""
        if other is None:
            return self
        oldest = min(self.oldest, other.oldest)
        number, size = self.number + other.number, self.size + other.size
        return Pruned(self.kind, self.project, number, size, oldest)


@dataclass(slots=True)
class _Run:
    """One pass over one kind.

    Attributes:
        project: of each agent.
        over: for each project the bytes that it has too many.
        gone: keys that went, where the rows still stand.
    """

    kind: str
    keeping: Keeping
    now: float
    project: Mapping[str, str]
    over: dict[str, int] = field(default_factory=dict)
    gone: set[int] = field(default_factory=set)
    found: dict[str, Pruned] = field(default_factory=dict)

    def project_of(self, parties: tuple[str, ...], said: str) -> str:
        return said or next((self.project[uid] for uid in parties if uid in self.project), "")

    def may_go(self, row: Ended) -> bool:
        if not row.number or row.ended_at > self.now - LEAST:
            return False
        project = self.project_of(row.parties, row.project)
        keep = self.keeping.of(self.kind, project)
        if keep.seconds is not None and row.ended_at < self.now - keep.seconds:
            return True
        return self.over.get(project, 0) > 0

    def count(self, row: Ended) -> None:
        project = self.project_of(row.parties, row.project)
        if project in self.over:
            self.over[project] -= row.size
        self.found.setdefault(project, Pruned(self.kind, project)).count(row)


class Pruner:
    """Applies the rules of retention to one organisation's rows."""

    def __init__(
        self, database: Database, keeping: Keeping, clock: Callable[[], float] = time.time
    ) -> None:
        self._database = database
        self._write = partial(database.write, accounts=False)
        self._keeping = keeping
        self._clock = clock

    async def due(self) -> list[Pruned]:
        """What `prune` would give up now."""
        return await self._all(give_up=False)

    async def prune(self) -> list[Pruned]:
        """Give up what is due; returns what it was. Open messages and tasks always stay."""
        found = await self._all(give_up=True)
        await self._write(
            lambda store: pruning.forget_given_up(store.session, self._clock() - REMEMBERED)
        )
        age = self._keeping.of("messages", "").seconds
        if age is not None:
            before = self._clock() - max(age, LEAST)
            await self._write(lambda store: pruning.forget_dropped(store.session, before))
        return found

    async def _all(self, *, give_up: bool) -> list[Pruned]:
        limited = [name for name in ORDER if self._keeping.limited(_rule_of(name))]
        found: dict[tuple[str, str], Pruned] = {}
        for name in limited:
            run = await self._pass(name, give_up=give_up)
            for project in sorted(run.found):
                one = run.found[project]
                found[one.kind, project] = one.with_(found.get((one.kind, project)))
        return list(found.values())

    async def _pass(self, name: str, *, give_up: bool) -> _Run:
        read, kind = self._database.read, pruning.KINDS[name]
        project = await read(lambda store: pruning.projects_of_agents(store.session))
        rule = _rule_of(name)
        run = _Run(rule, self._keeping, self._clock(), project)
        if self._keeping.sized(rule):
            for parties, said, size in await read(kind.sizes):
                project = run.project_of(parties, said)
                run.over[project] = run.over.get(project, 0) + size
            for project in list(run.over):
                most = self._keeping.of(rule, project).size
                run.over[project] = 0 if most is None else run.over[project] - most
        after = 0
        while page := await read(lambda store, at=after: kind.page(store, at, PAGE)):
            chosen = [row for row in page if run.may_go(row)]
            if chosen:
                step = partial(_step, kind=kind, run=run, chosen=chosen, give_up=give_up)
                await (self._write if give_up else read)(step)
            after = page[-1].key
            if page[-1].began_at > run.now - LEAST:
                break  # whatever comes later has ended later still
        return run


def _rule_of(name: str) -> str:
    return pruning.KINDS[name].rule or name


def _step(store: Store, *, kind: Kind, run: _Run, chosen: list[Ended], give_up: bool) -> None:
    held = kind.held(store, chosen, run.gone)
    going = []
    for row in chosen:
        if row.key not in held and run.may_go(row):  # the first ones may have made enough room
            run.count(row)
            going.append(row)
    if give_up:
        kind.give_up(store, going)
    else:
        run.gone.update(row.key for row in going)


@dataclass(frozen=True, slots=True)
class Over:
    """When records of a stream are over.

    Attributes:
        judge: tells it from the rows, the record, and the instant before which it must have been final.
        folded: whether the records become rows, so that a snapshot must hold them first.
    """

    judge: Callable[[Store, Message, float], bool]
    folded: bool = True


class Retention:
    """Shortens the log.

    Args:
        database: the projection, in a file.
        folder: of the snapshot.
        org: whose it is.
        over: the streams to shorten, each with its rule.
        pruner: gives up rows that the user does not keep; None for nothing.
        keep: seconds that final records are kept.
    """

    def __init__(
        self,
        admin: BusAdmin,
        database: Database,
        folder: Path,
        over: Mapping[str, Over],
        *,
        org: str,
        pruner: Pruner | None = None,
        clock: Callable[[], float] = time.time,
        keep: float = KEEP,
    ) -> None:
        self._admin = admin
        self._database = database
        self._folder = folder
        self._over = over
        self._org = org
        self._pruner = pruner
        self._wake = asyncio.Event()
        self._copying = asyncio.Lock()
        self._failed = False
        self._clock = clock
        self._keep = keep

    async def run(self) -> None:
        """Shorten the log every `INTERVAL` seconds, or more seldom, until cancelled."""
        took = 0.0
        while True:
            pause = max(INTERVAL, took / SHARE)
            if not self._failed:
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause * random.uniform(0.9, 1.1)):  # noqa: S311 (jitter)
                        await self._wake.wait()
            self._wake.clear()
            begun = time.monotonic()
            self._failed = True  # unless it comes to its end
            deleted = await self.shorten()
            self._failed = False
            log.info("%d records were deleted from the log", deleted)
            well()
            took = time.monotonic() - begun

    async def due(self) -> list[Pruned]:
        """What the user does not keep any more."""
        return await self._pruner.due() if self._pruner else []

    async def prune(self) -> list[Pruned]:
        """Give that up now, and have the log shortened soon; returns what it was."""
        found = await self._pruner.prune() if self._pruner else []
        self._wake.set()
        return found

    async def shorten(self) -> int:
        """Give up what the user does not keep, take a snapshot, and delete from the log what it holds and nobody
        needs; returns the number of deleted records.

        Raises:
            InvalidInput: the database is in memory.
            StateUnwritable: the disk has no room for the snapshot; nothing was deleted.
            EnvironmentFault: the database or the snapshot is damaged; nothing was deleted.
        """
        if self._pruner is not None:
            await self._pruner.prune()
        before = self._clock() - self._keep
        held = await self.copy()
        deleted = sum([await self._shorten(stream, held.cursors, before) for stream in self._over])
        await self._database.write(
            lambda store: store.records.forget_early_receipts(before), accounts=False
        )
        return deleted

    async def copy(self) -> SnapshotHeader:
        """Take a snapshot, and put it in place of the last one; raises as `shorten`."""
        path = self._folder / snapshot.NAME
        async with self._copying:
            return await asyncio.to_thread(copying.take, self._database, path, self._org)

    async def _shorten(self, stream: str, held: Mapping[str, int], before: float) -> int:
        over, deleted, after = self._over[stream], 0, 0
        while True:
            batch = await self._scan(stream, after)
            old = [record for record in batch if record.timestamp < before]
            if over.folded:
                old = [record for record in old if record.sequence <= held.get(stream, 0)]
            for at in range(0, len(old), JUDGED):
                part = old[at : at + JUDGED]
                for sequence in await self._database.read(
                    partial(_those_over, over, stream, part, before)
                ):
                    await self._admin.delete(stream, sequence)
                    deleted += 1
            # Up to the first record that is too new: a flood must leave as fast as it came.
            if len(batch) < SCAN or batch[-1].timestamp >= before:
                return deleted
            after = batch[-1].sequence

    async def _scan(self, stream: str, after: int) -> list[Message]:
        batch: list[Message] = []
        async for record in self._admin.replay(stream, after=after):
            batch.append(record)
            if len(batch) == SCAN:
                break
        return batch


def _those_over(
    over: Over, stream: str, batch: list[Message], before: float, store: Store
) -> list[int]:
    kept = set(store.records.passed_over(stream))  # a rebuild by better rules folds them
    return [
        record.sequence
        for record in batch
        if record.sequence not in kept and over.judge(store, record, before)
    ]
