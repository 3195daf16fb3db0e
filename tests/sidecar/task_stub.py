"""A stand-in for the tasks of `Actions`, in memory, for the parts that only pass requests on."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any

from postroom.errors import Conflict, NotFound
from postroom.protocol.limits import MAX_PAGE_BYTES
from postroom.protocol.tasks import task_id
from postroom.protocol.verbs import (
    AnswerTask,
    Artifact,
    AskAuth,
    AskInput,
    Canceled,
    CancelTask,
    Complete,
    Delegate,
    Fail,
    Progress,
    Reject,
    TaskAction,
)
from postroom.sidecar.a2a.changes import Page, TaskChange, TaskChanges
from postroom.sidecar.actions import Actions
from postroom.sidecar.adapters import Sender
from postroom.sidecar.delegations import Delegated
from postroom.sidecar.keys import Owner
from postroom.tasks.operations import listed, position_in, token_of
from postroom_a2a.ecma_json import dumps
from postroom_a2a.messages import ROLE_USER, text_message, text_of
from postroom_a2a.service import TaskPage, TaskQuery
from postroom_a2a.task_state import TaskState
from postroom_a2a.tasks import (
    apply,
    artifact_update,
    artifacts_of,
    new_task,
    state_of,
    status_text,
    status_update,
)
from postroom_a2a.times import parse_time

OWN = "b" * 32
OTHER = Sender("c" * 32, "carol", "worker")

STATES: dict[type, TaskState] = {
    Progress: TaskState.WORKING,
    Complete: TaskState.COMPLETED,
    Fail: TaskState.FAILED,
    Reject: TaskState.REJECTED,
    AskInput: TaskState.INPUT_REQUIRED,
    AskAuth: TaskState.AUTH_REQUIRED,
    Canceled: TaskState.CANCELED,
}


def page_of_all(tasks: list[tuple[float, dict[str, Any]]], query: TaskQuery) -> TaskPage:
    """The page of tasks, each with the instant of its last change, as the control plane makes it in SQL."""
    found = sorted(
        (
            (at, task["id"], task)
            for at, task in tasks
            if query.context in ("", task["contextId"])
            and query.state in (None, state_of(task))
            and at >= query.since
        ),
        reverse=True,
    )
    after = position_in(query.page) if query.page else None
    rest = [each for each in found if after is None or each[:2] < after]
    shown: list[dict[str, Any]] = []
    room = MAX_PAGE_BYTES
    for _, _, task in rest[: query.limit]:
        room -= len(dumps(task))
        if shown and room < 0:
            break
        shown.append(listed(task, query))
    more = len(rest) > len(shown)
    return TaskPage(shown, len(found), token_of(rest[len(shown) - 1][:2]) if more else "")


class TaskStub(Actions):
    """Tasks of one worker, `OWN`; whoever is asked for another one is carol.

    Attributes:
        asked: what was delegated, in order.
        said: what was said of tasks.
    """

    def __init__(self) -> None:
        self.asked: list[Delegate] = []
        self.said: list[TaskAction] = []
        self.canceled: list[CancelTask] = []
        self.answered: list[AnswerTask] = []
        self._snapshots: dict[str, dict[str, Any]] = {}
        self._workers: dict[str, Sender] = {}
        self._logs: dict[str, list[TaskChange]] = {}
        self._sequences = itertools.count(1)
        self.news = TaskChanges()
        self._changed = asyncio.Condition()
        self._clock = itertools.count(int(time.time()))

    # ── what a test does ────────────────────────────────────────────────────────────────────────────

    async def until(self, number: int) -> str:
        """Wait until so many tasks were asked for; the id of the last."""
        async with asyncio.timeout(10), self._changed:
            await self._changed.wait_for(lambda: len(self._snapshots) >= number)
        return list(self._snapshots)[number - 1]

    # ── what Actions offers ──────────────────────────────────────────────────────────────────────

    async def delegate(self, action: Delegate, owner: Owner | None = None) -> Delegated:
        worker = Sender(OWN, "reader", "worker") if action.to == OWN else OTHER
        message = f"m-{action.key}" if action.key else f"m{len(self.asked)}"
        task = task_id(worker.uid, OWN, message)
        self.asked.append(action)
        if task not in self._snapshots:
            said = action.content
            request = said.message(action.named or message, ROLE_USER)
            self._workers[task] = worker
            await self._store(new_task(task, said.thread or task, request, next(self._clock)))
        return Delegated(message, task, worker)

    async def on_task(self, action: TaskAction) -> None:
        self.said.append(action)
        task = self._found(action.task or list(self._snapshots)[-1])
        at = next(self._clock)
        if isinstance(action, Artifact):
            parts = [dict(part) for part in action.content.parts]
            artifact = {"artifactId": action.id or "a", "name": action.name, "parts": parts}
            event = artifact_update(task, artifact, append=action.append)
        else:
            message = text_message("s", action.text) if action.text else None
            event = status_update(task, STATES[type(action)], at, message)
        await self._store(apply(task, event), event)

    async def task(self, task_id: str, *, wait: bool, timeout: float) -> dict[str, Any]:
        def settled() -> bool:
            state = state_of(self._found(task_id))
            return state.terminal or state.interrupted

        self._found(task_id)
        if wait:
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout), self._changed:
                    await self._changed.wait_for(settled)
        return self._view(self._found(task_id))

    async def tasks(self, role: str, *, open_only: bool) -> list[dict[str, Any]]:
        return await self.views(role, open_only=open_only)

    async def views(self, role: str, *, open_only: bool, other: str = "") -> list[dict[str, Any]]:
        views = [self._view(task) for task in self._snapshots.values()]
        return [
            view
            for view in views
            if not (open_only and view["final"])
            and (role != "worker" or view["worker"]["uid"] == OWN)
            and other in ("", view["worker"]["uid"])
        ]

    async def page(self, role: str, other: str, query: TaskQuery) -> TaskPage:
        return page_of_all(
            [
                (parse_time(view["updated_at"]), self._snapshots[view["id"]])
                for view in await self.views(role, open_only=False, other=other)
            ],
            query,
        )

    async def snapshot(self, task_id: str) -> dict[str, Any]:
        return self._found(task_id)

    async def cancel_task(self, action: CancelTask) -> dict[str, Any]:
        task = self._found(action.task)
        if state_of(task).terminal:
            raise Conflict(f"it is {state_of(task)} already")
        self.canceled.append(action)
        event = status_update(task, TaskState.CANCELED, next(self._clock))
        await self._store(apply(task, event), event)
        return self._view(self._found(action.task))

    async def answer_task(self, action: AnswerTask) -> tuple[dict[str, Any], bool]:
        task = self._found(action.task)
        if not state_of(task).interrupted:
            raise Conflict("it waits for nothing")
        self.answered.append(action)
        heard = action.content.message("h", ROLE_USER)
        update = status_update(task, TaskState.WORKING, next(self._clock))
        await self._store(apply(task, update, answer=heard), update)
        return self._view(self._found(action.task)), False

    async def changes(self, task_id: str, after: int) -> Page:
        task, log = self._found(task_id), self._logs[task_id]
        found = tuple(change for change in log if change.sequence > after)
        return Page(found, False, log[-1].sequence, state_of(task), task)

    # ── what the ledger and the live path offer ──────────────────────────────────────────────────────────

    def follow(
        self, _: Any, task: str, after: int, _worker: str
    ) -> AsyncGenerator[TaskChange, None]:
        return self.news.follow(self, task, after)

    async def _store(self, task: dict[str, Any], event: dict[str, Any] | None = None) -> None:
        log = self._logs.setdefault(task["id"], [])
        last = log[-1].sequence if log else 0
        change = TaskChange(last, next(self._sequences), state_of(task), event)
        log.append(change)
        async with self._changed:
            self._snapshots[task["id"]] = task
            self._changed.notify_all()
        self.news.put(task["id"], change)

    def _found(self, task: str) -> dict[str, Any]:
        if task not in self._snapshots:
            raise NotFound("there is no such task")
        return self._snapshots[task]

    def _view(self, task: dict[str, Any]) -> dict[str, Any]:
        worker = self._workers[task["id"]]
        state = state_of(task)
        return {
            "id": task["id"],
            "context": task["contextId"],
            "state": state.value,
            "final": state.terminal,
            "detail": "",
            "worker": {"uid": worker.uid, "nick": worker.nick, "kind": worker.kind},
            "requester": {"uid": OWN, "nick": "reader", "kind": "worker"},
            "text": text_of(task["history"][0]),
            "attempt": 1,
            "seq": self._logs[task["id"]][-1].sequence,
            "updated_at": task["status"]["timestamp"],
            "status_text": status_text(task),
            "artifacts": artifacts_of(task),
        }
