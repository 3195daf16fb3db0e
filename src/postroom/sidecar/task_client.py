"""The control plane's tasks, as far as this worker may ask: those that it runs, and those that it asked for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from postroom.errors import ProtocolViolation
from postroom.protocol.content import Content
from postroom.protocol.limits import MAX_LIST
from postroom.sidecar.a2a.changes import Page, TaskChange
from postroom.sidecar.adapters import Sender
from postroom.sidecar.bus import BusClient, ask_control
from postroom.tasks.engine import Ask, TaskEngine
from postroom.tasks.log import StoredTask
from postroom.tasks.records import TaskRecord
from postroom_a2a.messages import ROLE_USER
from postroom_a2a.service import TaskPage, TaskQuery
from postroom_a2a.task_state import TaskState


class TaskClient:
    """Asks the control plane for tasks; a `tasks.log.TaskSource`."""

    def __init__(self, bus: BusClient, own: str, run: str) -> None:
        self._bus = bus
        self._own = own
        self._run = run

    async def get(self, task_id: str) -> StoredTask:
        """As `TaskSource.get`."""
        answer = await self._ask("tasks.get", {"task": task_id, "fresh": True, "run": self._run})
        try:
            record = TaskRecord(
                task=answer["task"],
                request=str(answer["request"]),
                requester=str(answer["requester"]),
                attempt=int(answer["attempt"]),
                lost=int(answer["lost"]),
                runner=str(answer["runner"]),
                released=bool(answer["released"]),
            )
            return StoredTask(record, int(answer["sequence"]), bool(answer.get("free", True)))
        except (KeyError, TypeError, ValueError) as error:
            raise ProtocolViolation(f"the answer to tasks.get is not a task: {error}") from error

    async def recover(self, engine: TaskEngine) -> int:
        """Give `engine` the open tasks of earlier runs of this worker; returns their number."""
        after, found = 0, 0
        while True:
            answer = await self._ask("tasks.open", {"run": self._run, "after": after})
            for entry in answer.get("tasks", ()):
                after = int(entry["requested"])
                if entry.get("free", True):
                    engine.recover(str(entry["id"]), TaskState(entry["state"]))
                    found += 1
            if not answer.get("more"):
                return found

    async def requested(self, accept: Callable[[Ask], Awaitable[None]]) -> None:
        """Pass `accept` the requests to this worker that it has not accepted, in their order."""
        after, more = 0, True
        while more:
            question = {"run": self._run, "after": after, "untaken": True}
            answer = await self._ask("tasks.open", question)
            for entry in answer.get("tasks", ()):
                after = int(entry["requested"])
                record = (await self.get(str(entry["id"]))).record
                message = record.task["history"][0]
                await accept(Ask(record.request, record.requester, message, str(entry["skill"])))
            more = answer.get("more") is True

    async def view(self, task_id: str) -> dict[str, Any]:
        """The task as a TaskView.

        Raises:
            NotFound: this worker neither runs the task nor asked for it.
        """
        answer = await self._ask("tasks.get", {"task": task_id})
        return dict(answer["view"])

    async def snapshot(self, task_id: str) -> dict[str, Any]:
        """The task as A2A JSON. Raises as `view`."""
        return dict((await self._ask("tasks.get", {"task": task_id}))["task"])

    async def changes(self, task_id: str, after: int) -> Page:
        """The stored changes of a task past sequence `after`. Raises as `view`."""
        answer = await self._ask("tasks.changes", {"task": task_id, "after": after})
        try:
            found = []
            for entry in answer["changes"]:
                sequence, state = int(entry["sequence"]), TaskState(entry["state"])
                found.append(TaskChange(after, sequence, state, entry["event"]))
                after = sequence
            return Page(
                tuple(found),
                bool(answer["more"]),
                int(answer["sequence"]),
                TaskState(answer["state"]),
                dict(answer["task"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ProtocolViolation(f"the answer to tasks.changes is malformed: {error}") from error

    async def views(self, role: str, *, open_only: bool, other: str = "") -> list[dict[str, Any]]:
        """TaskViews, newest first: tasks that this worker runs (`worker`), asked for (`requester`), or both ("").

        `other` keeps those with that agent on the other side.
        """
        question = {"role": role, "open": open_only, "limit": MAX_LIST, "other": other}
        answer = await self._ask("tasks.list", question)
        return list(answer["tasks"])

    async def page(self, role: str, other: str, query: TaskQuery) -> TaskPage:
        """A page of the tasks that this worker runs (`worker`) or asked for (`requester`).

        `other` keeps those with that agent on the other side, "" for all.

        Raises:
            InvalidInput: the query names no page of ours.
        """
        question = {
            "role": role,
            "other": other,
            "context": query.context,
            "state": "" if query.state is None else query.state.value,
            "since": query.since,
            "limit": query.limit,
            "page": query.page,
            "history": query.history,
            "artifacts": query.artifacts,
        }
        answer = await self._ask("tasks.page", question)
        return TaskPage(list(answer["tasks"]), int(answer["total"]), str(answer["next"]))

    async def choose(self, skill: str, key: str) -> Sender:
        """Another agent that has the skill; the same one again under the same key."""
        answer = await self._ask("tasks.choose", {"skill": skill, "key": key})
        return Sender(str(answer["uid"]), str(answer["nick"]), str(answer["kind"]))

    async def cancel(self, task_id: str, reason: str) -> dict[str, Any]:
        """End a task that this worker asked for; returns its view."""
        answer = await self._ask("tasks.cancel", {"task": task_id, "reason": reason})
        return dict(answer["view"])

    async def answer(
        self, task_id: str, said: Content, named: str = ""
    ) -> tuple[dict[str, Any], bool]:
        """Answer the question of a task that this worker asked for; returns its view, and whether it had the answer.

        `named` is the answer's `messageId`.

        Raises:
            Conflict: the task has no open question.
        """
        question = {"task": task_id, "message": said.message(named, ROLE_USER)}
        answer = await self._ask("tasks.answer", question)
        return dict(answer["view"]), bool(answer.get("again"))

    async def _ask(self, verb: str, question: dict[str, Any]) -> dict[str, Any]:
        return await ask_control(self._bus, self._own, verb, question)
