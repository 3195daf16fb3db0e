"""Gives up what has ended and is older, or more, than the user keeps.

The rows go first. The snapshot that `Retention` takes next does not hold them, and what is at or before a snapshot's
cursors is never folded again: so neither a rebuild nor an older database brings them back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from postroom.settings.keeping import DAY, Keeping
from postroom.store import pruning
from postroom.store.database import Database, Store
from postroom.store.ports import Ended
from postroom.store.pruning import Kind

PAGE = 250
"""Things that one transaction examines and gives up."""

ORDER = ("tasks", "events", "worker-events", "messages", "posts", "announcements")
"""Tasks take their requests along, which are messages."""

LEAST = DAY
"""Seconds that everything is kept at least: a message that is sent again under its key is known that long."""


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
