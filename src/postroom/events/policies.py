"""What people allow one worker to do without asking them, from now on.

It is kept with the worker, so it holds over each restart and under a changed template. An event in the worker's stream
says who has added or removed what, and has the sidecar hear of it: that then gets all that is kept at that moment, so
the order in which two people's events were stored does not matter.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from weakref import WeakValueDictionary

from postroom.errors import Conflict, NotFound
from postroom.events.service import EventLog
from postroom.protocol import shapes
from postroom.protocol.events import EventKind
from postroom.protocol.limits import MAX_PATTERNS
from postroom.protocol.patterns import added
from postroom.protocol.template import parse_template
from postroom.store.agents import Agent
from postroom.store.database import Database, Store
from postroom.store.parties import Party
from postroom.store.workers import AddedRule, WorkerRecord
from postroom_a2a.times import format_time

ADDED, REMOVED = "added", "removed"


class Policies:
    """The policies of the workers of one organisation."""

    def __init__(
        self, log: EventLog, database: Database, clock: Callable[[], float] = time.time
    ) -> None:
        self._log = log
        self._database = database
        self._clock = clock
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def show(self, agent: Agent) -> shapes.Policy:
        """The policy of a worker; shape of the API.

        Raises:
            NotFound: it is no worker.
            InvalidTemplate: its template is of another version.
        """
        return _shown(agent, await self._record(agent))

    async def patterns(self, uid: str) -> list[str]:
        """What people have added for a worker, the oldest first; [] for none that is known."""

        def find(store: Store) -> list[str]:
            record = store.workers.worker_by_uid(uid)
            return [rule["pattern"] for rule in record.rules] if record else []

        return await self._database.read(find)

    async def allow(self, agent: Agent, pattern: str, by: Party) -> shapes.Policy:
        """Have a worker ask no more for what `pattern` names; without effect where it is added already.

        Raises:
            Conflict: too many are added.
            InvalidInput: it is none that people may add.
            PostroomError: it could not be stored; nothing was changed.
        """
        kept = added(pattern)
        rule: AddedRule = {
            "pattern": kept,
            "uid": by.uid,
            "nick": by.nick,
            "kind": by.kind,
            "at": self._clock(),
        }

        def change(rules: Sequence[AddedRule]) -> list[AddedRule]:
            if any(each["pattern"] == kept for each in rules):
                return list(rules)
            if len(rules) >= MAX_PATTERNS:
                raise Conflict(
                    f"{MAX_PATTERNS} patterns are added for @{agent.nick}",
                    remedy=f"postroom policy @{agent.nick} --remove PATTERN",
                )
            return [*rules, rule]

        return await self._change(agent, change, (ADDED, kept), by)

    async def forget(self, agent: Agent, pattern: str, by: Party) -> shapes.Policy:
        """Have a worker ask again for what an added pattern names; without effect where it is not added.

        Raises:
            PostroomError: it could not be stored; nothing was changed.
        """
        gone = pattern.strip(" ")

        def change(rules: Sequence[AddedRule]) -> list[AddedRule]:
            return [each for each in rules if each["pattern"] != gone]

        return await self._change(agent, change, (REMOVED, gone), by)

    async def _change(
        self,
        agent: Agent,
        change: Callable[[Sequence[AddedRule]], list[AddedRule]],
        what: tuple[str, str],
        by: Party,
    ) -> shapes.Policy:
        lock = self._locks.setdefault(agent.uid, asyncio.Lock())
        async with lock:
            before = await self._record(agent)
            after = change(before.rules)
            if after != before.rules:
                await self._keep(agent, after)
                try:
                    await self._tell(agent, what, by)
                except BaseException:
                    # Else a repeated call would find nothing to do, and the running agent would never hear of it.
                    await asyncio.shield(self._keep(agent, before.rules))
                    raise
        return _shown(agent, await self._record(agent))

    async def _tell(self, agent: Agent, what: tuple[str, str], by: Party) -> None:
        made, pattern = what
        event = {
            "type": EventKind.POLICY.value,
            "by": {"uid": by.uid, "nick": by.nick},
            "change": made,
            "pattern": pattern,
        }
        await self._log.append(agent.uid, [event])

    async def _keep(self, agent: Agent, rules: Sequence[AddedRule]) -> None:
        await self._database.write(lambda store: store.workers.set_rules(agent.uid, rules))

    async def _record(self, agent: Agent) -> WorkerRecord:
        record = await self._database.read(lambda store: store.workers.worker_by_uid(agent.uid))
        if record is None:
            raise NotFound(f"@{agent.nick} is not a worker of this post room")
        return record


def _shown(agent: Agent, record: WorkerRecord) -> shapes.Policy:
    template = parse_template(record.template, record.overrides)
    return {
        "worker": agent.party.as_json(),
        "template": record.origin.get("path", ""),
        "autonomous": template.autonomous,
        "auto_deny": list(template.auto_deny),
        "auto_approve": list(template.auto_approve),
        "added": [
            {
                "pattern": rule["pattern"],
                "by": Party(rule["uid"], rule["nick"], rule["kind"]).as_json(),
                "at": format_time(rule["at"]),
            }
            for rule in record.rules
        ],
    }
