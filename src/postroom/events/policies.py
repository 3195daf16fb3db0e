"""What people allow one worker to do without asking them, from now on.

It is kept with the worker, so it holds over each restart and under a changed template. An event in the worker's stream
says who has added or removed what, and has the sidecar hear of it: that then gets all that is kept at that moment, so
the order in which two people's events were stored does not matter.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any
from weakref import WeakValueDictionary

from postroom.errors import Conflict, NotFound
from postroom.events.approvals import ApprovalView
from postroom.events.service import EventLog
from postroom.protocol import shapes
from postroom.protocol.autonomy import MAX_TASKS, Autonomy, word_of
from postroom.protocol.events import EventKind
from postroom.protocol.limits import MAX_PATTERNS
from postroom.protocol.patterns import added, approving, denies
from postroom.protocol.template import parse_template
from postroom.store.agents import Agent, Party
from postroom.store.database import Database, Store
from postroom.store.workers import AddedRule, WorkerRecord, autonomy_of, patterns_of
from postroom_a2a.times import format_time

ADDED, REMOVED, AUTONOMY = "added", "removed", "autonomy"


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
        record = await self._record(agent)
        named = set(autonomy_of(record.rules)) - {""}
        over = await self._database.read(lambda store: _over(store, named)) if named else set()
        return _shown(agent, record, over)

    async def told(self, uid: str) -> Mapping[str, Any]:
        """What the sidecar of a worker is told of what people have added: `rules`, and `autonomy` by task."""

        def find(store: Store) -> Mapping[str, Any]:
            record = store.workers.worker_by_uid(uid)
            rules = record.rules if record else []
            return {"rules": patterns_of(rules), "autonomy": autonomy_of(rules)}

        return await self._database.read(find)

    async def allow(self, agent: Agent, pattern: str, by: Party) -> shapes.Policy:
        """Have a worker ask no more for what `pattern` names; without effect where it is added already.

        Raises:
            Conflict: too many are added.
            InvalidInput: it is none that people may add.
            PostroomError: it could not be stored; nothing was changed.
        """
        kept = added(pattern)
        rule = _rule(kept, by, self._clock())

        def change(rules: Sequence[AddedRule]) -> list[AddedRule]:
            if any(each["pattern"] == kept for each in rules):
                return list(rules)
            if len(rules) >= MAX_PATTERNS:
                raise Conflict(
                    f"{MAX_PATTERNS} patterns are added for @{agent.nick}",
                    remedy=f"postroom policy @{agent.nick} --remove PATTERN",
                )
            return [*rules, rule]

        return await self._change(agent, change, {"change": ADDED, "pattern": kept}, by)

    async def let(
        self, agent: Agent, autonomy: Autonomy, by: Party, task: str = ""
    ) -> shapes.Policy:
        """Set how much a worker does unasked, from now on or in the turns for a task.

        What is set without a task ends what was set for some.

        Raises:
            NotFound: the worker has no such task.
            Conflict: the task has ended.
            PostroomError: it could not be stored; nothing was changed.
        """
        over = await self._database.read(lambda store: _checked(store, agent, task))
        rule = autonomy_rule(autonomy, by, self._clock(), task)

        def change(rules: Sequence[AddedRule]) -> list[AddedRule]:
            before = [each for each in rules if "autonomy" in each]
            same = [each for each in before if (each["autonomy"], each["task"]) == (autonomy, task)]
            if same and (task or same == before):
                return list(rules)
            stays = [each for each in before if task and each["task"] not in {task, *over}]
            patterns = [each for each in rules if "autonomy" not in each]
            return [*patterns, *stays[-MAX_TASKS:], rule]

        return await self._change(agent, change, autonomy_said(autonomy, task), by)

    async def forget(self, agent: Agent, pattern: str, by: Party) -> shapes.Policy:
        """Have a worker ask again for what an added pattern names; without effect where it is not added.

        Raises:
            PostroomError: it could not be stored; nothing was changed.
        """
        gone = pattern.strip(" ")

        def change(rules: Sequence[AddedRule]) -> list[AddedRule]:
            return [each for each in rules if not gone or each["pattern"] != gone]

        return await self._change(agent, change, {"change": REMOVED, "pattern": gone}, by)

    async def _change(
        self,
        agent: Agent,
        change: Callable[[Sequence[AddedRule]], list[AddedRule]],
        what: Mapping[str, str],
        by: Party,
    ) -> shapes.Policy:
        lock = self._locks.setdefault(agent.uid, asyncio.Lock())
        async with lock:
            before = await self._record(agent)
            after = change(before.rules)
            if after != before.rules:
                await self._keep(agent, after)
                try:
                    await self.tell(agent, what, by)
                except BaseException:
                    # Else a repeated call would find nothing to do, and the running agent would never hear of it.
                    await asyncio.shield(self._keep(agent, before.rules))
                    raise
        return await self.show(agent)

    async def tell(self, agent: Agent, what: Mapping[str, str], by: Party) -> None:
        """Have the sidecar of a worker, and who watches, hear of a change.

        Raises:
            PostroomError: it could not be stored.
        """
        event = {
            "type": EventKind.POLICY.value,
            "by": {"uid": by.uid, "nick": by.nick},
            **what,
        }
        await self._log.append(agent.uid, [event])

    async def _keep(self, agent: Agent, rules: Sequence[AddedRule]) -> None:
        await self._database.write(lambda store: store.workers.set_rules(agent.uid, rules))

    async def _record(self, agent: Agent) -> WorkerRecord:
        record = await self._database.read(lambda store: store.workers.worker_by_uid(agent.uid))
        if record is None:
            raise NotFound(f"@{agent.nick} is not a worker of this post room")
        return record


def allows(policy: shapes.Policy, view: ApprovalView) -> bool:
    """Whether what waits is allowed by now: its sidecar has judged it by the policy of before.

    Which files lie in the worker's folder the sidecar has said with the request: it alone knows that.
    """
    asked = view.row.request
    tool, given = str(asked.get("tool") or ""), asked.get("input")
    given = given if isinstance(given, dict) else {}
    if any(denies(rule, tool, given) for rule in policy["auto_deny"]):
        return False
    kept = {each["task"] or "": each["autonomy"] for each in policy["autonomy"]}
    word = word_of(kept, autonomous=policy["autonomous"], task=view.row.task)
    patterns = [*policy["auto_approve"], *(each["pattern"] for each in policy["added"])]
    edits = word is Autonomy.EDITS and asked.get("edits") is True
    return word is Autonomy.ALL or edits or bool(approving(patterns, tool, given))


def autonomy_rule(autonomy: Autonomy, by: Party, at: float, task: str = "") -> AddedRule:
    """What a person has set, as it is kept."""
    return {**_rule("", by, at), "autonomy": autonomy.value, "task": task}


def autonomy_said(autonomy: Autonomy, task: str = "") -> dict[str, str]:
    """The event that says so, without who."""
    said = {"change": AUTONOMY, "autonomy": autonomy.value}
    return said | ({"task": task} if task else {})


def _rule(pattern: str, by: Party, at: float) -> AddedRule:
    return {"pattern": pattern, "uid": by.uid, "nick": by.nick, "kind": by.kind, "at": at}


def _checked(store: Store, agent: Agent, task: str) -> set[str]:
    """Of the tasks for which autonomy is set, those that are over; raises NotFound or Conflict for another `task`."""
    record = store.workers.worker_by_uid(agent.uid)
    over = _over(store, autonomy_of(record.rules if record else []))
    if task:
        head = next(iter(store.tasks.heads_by_ids([task])), None)
        if head is None or head.worker != agent.uid:
            raise NotFound(f"@{agent.nick} has no task {task!r}")
        if head.final:
            raise Conflict("the task has ended: there is nothing to be asked in it any more")
    return over


def _over(store: Store, tasks: Iterable[str]) -> set[str]:
    """Those of `tasks` in which nothing is asked any more."""
    named = {task for task in tasks if task}
    return named - {head.id for head in store.tasks.heads_by_ids(named) if not head.final}


def _shown(agent: Agent, record: WorkerRecord, over: Collection[str]) -> shapes.Policy:
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
            if "autonomy" not in rule
        ],
        "autonomy": [
            {
                "autonomy": rule["autonomy"],
                "task": rule.get("task") or None,
                "by": Party(rule["uid"], rule["nick"], rule["kind"]).as_json(),
                "at": format_time(rule["at"]),
            }
            for rule in record.rules
            if "autonomy" in rule and rule.get("task") not in over
        ],
    }
