"""Several workers on one bus, and what the control plane tells them of their tasks."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from postroom.bus.port import Message
from postroom.errors import InvalidInput, NotFound, problem
from postroom.protocol import priority, subjects
from postroom.protocol.envelope import Envelope
from postroom.protocol.ids import CONTROL_PLANE
from postroom.protocol.priority import Cancel, Update
from postroom.protocol.tasks import parse_task_subject, task_id
from postroom.tasks.engine import Ask
from postroom.tasks.log import StoredTask
from postroom.tasks.records import Link, TaskRecord
from postroom_a2a.service import TaskQuery
from postroom_a2a.task_state import TaskState
from postroom_a2a.tasks import Event
from postroom_a2a.times import format_time
from tests.sidecar.task_stub import page_of_all

if TYPE_CHECKING:
    from tests.sidecar.worker_rig import WorkerRig


PAGE = 6
"""Changes in one answer: of the largest, so many fit."""


@dataclass
class ControlStub:
    """The workers on one bus, as the control plane knows them and their tasks."""

    workers: list[WorkerRig] = field(default_factory=list)
    logs: dict[str, list[tuple[int, TaskRecord]]] = field(default_factory=dict)
    silent: bool = False
    """Whether nobody is told of changes."""

    def of(self, worker: str) -> WorkerRig | None:
        """The worker's."""
        return next((rig for rig in self.workers if rig.worker == worker), None)

    def requests(self) -> list[tuple[WorkerRig, str]]:
        """Each task that was asked for, and its worker's rig."""
        found = []
        for message in self.workers[0].tap.of("inbox"):
            said, envelope = subjects.parse(message.subject), Envelope.decode(message.payload)
            rig = self.of(said.recipient)
            if rig is not None and envelope.request is not None:
                task = task_id(said.recipient, said.sender, envelope.id)
                rig.ledger.asks[task] = Ask(envelope.id, said.sender, envelope.message)
                found.append((rig, task))
        return list(dict.fromkeys(found))

    async def log(self, task: str) -> list[tuple[int, TaskRecord]]:
        """(sequence, record) of every record of a task."""
        known = self.logs.setdefault(task, [])
        after = known[-1][0] if known else 0
        for rig, each in self.requests():
            if each == task:
                subject = f"worker.{rig.worker}.tasks.{task}.>"
                replay = rig.bus.admin.replay("TASKS", after=after, subjects=(subject,))
                async for message in replay:
                    if not known or message.sequence > known[-1][0]:  # others read, too
                        before = known[-1][1].task if known else None
                        record = Link.decode(message.payload).after(before)
                        known.append((message.sequence, record))
        return known

    async def task(self, task: str, asker: str) -> tuple[WorkerRig, StoredTask]:
        """A task that `asker` runs or asked for.

        Raises:
            NotFound: there is none.
        """
        self.requests()
        for rig in self.workers:
            with suppress(NotFound):
                stored = await rig.ledger.get(task)
                if asker in (rig.worker, stored.record.requester):
                    return rig, stored
        raise NotFound(f"no task {task}")

    async def tell(self, message: Message) -> None:
        """Tell who asked for a task of its change, as the control plane does."""
        said = parse_task_subject(message.subject)
        rig = self.of(said[0]) if said is not None else None
        if self.silent or len(self.workers) < 2 or said is None or rig is None:
            return
        link = Link.decode(message.payload)
        asker = self.of(link.requester)
        if asker is not None and link.event is not None:
            worker, task, state = said
            sequence = (await rig.ledger.get(task)).sequence  # what is heard live has none
            await asker.news(
                Update(task, worker, link.request, sequence, link.attempt, state, link.event)
            )


async def task_answer(found: WorkerRig, asker: str, verb: str, asked: dict[str, Any]) -> bytes:
    """What the control plane answers about tasks."""
    if verb == "open":
        entries = []
        for number, task in enumerate(found.ledger.asks, start=1):
            stored = await found.ledger.get(task)
            taken = bool(stored.sequence)
            if taken is not asked.get("untaken", False) and not stored.record.state.terminal:
                entry = {"id": task, "requested": number, "state": stored.record.state.value}
                entries.append(entry | {"free": True, "skill": found.ledger.asks[task].skill})
        return json.dumps({"tasks": entries, "more": False}).encode()
    if verb == "choose":
        found.chosen.append((asked["skill"], asked["key"]))
        return json.dumps({"uid": found.alice.uid, "nick": "alice", "kind": "worker"}).encode()
    if verb == "list":
        views = [_view(rig, await rig.ledger.get(task)) for rig, task in found.control.requests()]
        side = {"worker": "requester", "requester": "worker"}[asked["role"]]
        wanted = [
            view
            for view in views
            if view[asked["role"]]["uid"] == asker and asked["other"] in ("", view[side]["uid"])
        ]
        return json.dumps({"tasks": wanted}).encode()
    if verb == "page":
        return await _page(found, asker, asked)
    if verb == "changes":
        return await _changes(found, asker, asked)
    try:
        rig, stored = await found.control.task(str(asked.get("task", "")), asker)
        if verb == "cancel":
            cancel = priority.encode(Cancel(stored.record.id, str(asked["reason"])))
            await found.bus.core.publish(subjects.priority(rig.worker, CONTROL_PLANE), cancel)
    except NotFound as error:
        return json.dumps({"error": problem(error)}).encode()
    record = stored.record
    answer = {
        "task": record.task,
        "sequence": stored.sequence,
        "request": record.request,
        "requester": record.requester,
        "attempt": record.attempt,
        "lost": record.lost,
        "runner": record.runner,
        "released": record.released,
        "view": _view(rig, stored),
    }
    return json.dumps(answer).encode()


async def _page(found: WorkerRig, asker: str, asked: dict[str, Any]) -> bytes:
    tasks = []
    for rig, task in found.control.requests():
        stored = await rig.ledger.get(task)
        sides = {"worker": rig.worker, "requester": stored.record.requester}
        mine = sides.pop(asked["role"])
        if mine == asker and asked["other"] in ("", *sides.values()):
            tasks.append((float(stored.sequence), stored.record.task))
    query = TaskQuery(
        context=asked["context"],
        state=TaskState(asked["state"]) if asked["state"] else None,
        since=asked["since"],
        limit=asked["limit"],
        page=asked["page"],
        history=asked["history"],
        artifacts=asked["artifacts"],
    )
    try:
        page = page_of_all(tasks, query)
    except InvalidInput as error:
        return json.dumps({"error": problem(error)}).encode()
    answer = {"tasks": page.tasks, "total": page.total, "next": page.next_page}
    return json.dumps(answer).encode()


async def _changes(found: WorkerRig, asker: str, asked: dict[str, Any]) -> bytes:
    log = await found.control.log(asked["task"])
    if not log:  # it was not taken yet
        try:
            _, stored = await found.control.task(asked["task"], asker)
        except NotFound as error:
            return json.dumps({"error": problem(error)}).encode()
        log = [(stored.sequence, stored.record)]
    changes = [
        {"sequence": sequence, "state": each.state.value, "event": _event(each)}
        for sequence, each in log
        if sequence > asked["after"]
    ]
    sequence, record = log[-1]
    answer = {"changes": changes[:PAGE], "more": len(changes) > PAGE, "sequence": sequence}
    return json.dumps(answer | {"state": record.state.value, "task": record.task}).encode()


def _event(record: TaskRecord) -> Event | None:
    if record.event is not None or record.state is TaskState.SUBMITTED:
        return record.event
    update = {name: record.task[name] for name in ("id", "contextId", "status")}
    return {"statusUpdate": {"taskId": update.pop("id"), **update}}


def _view(rig: WorkerRig, stored: StoredTask) -> dict[str, Any]:
    record = stored.record
    return {
        "id": record.id,
        "context": record.task["contextId"],
        "state": record.state.value,
        "final": record.state.terminal,
        "seq": stored.sequence,
        "updated_at": format_time(stored.sequence),
        "worker": {"uid": rig.worker},
        "requester": {"uid": record.requester},
    }
