"""What this worker asks the control plane over the bus: who is who, its own tasks, and those that it asked for."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any

from postroom.errors import InvalidInput, PostroomError, ProtocolViolation
from postroom.observe import get_logger
from postroom.protocol.content import Content
from postroom.protocol.ids import CONTROL_PLANE, UID, check_address, is_uid
from postroom.protocol.limits import MAX_LIST
from postroom.sidecar.a2a.changes import Page, TaskChange
from postroom.sidecar.adapters import Sender
from postroom.sidecar.bus import BusClient, ask_control
from postroom.tasks.engine import Ask, TaskEngine
from postroom.tasks.log import StoredTask, TaskSource
from postroom.tasks.records import TaskRecord
from postroom_a2a.messages import ROLE_USER
from postroom_a2a.service import TaskPage, TaskQuery
from postroom_a2a.task_state import TaskState


class TaskClient(TaskSource):
    """Asks the control plane for tasks."""

    def __init__(self, bus: BusClient, own: str, run: str) -> None:
        self._bus = bus
        self._own = own
        self._run = run

    async def get(self, task_id: str) -> StoredTask:
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


LIFETIME = 60.0
"""Seconds that an answer is kept: a nick may go to another agent."""

CAPACITY = 512

NAME_TIMEOUT = 2.0
"""Seconds that a message waits for its sender's nick, which is decoration: the uid counts."""

_log = get_logger(__name__)


class DirectoryClient:
    """The directory, as this worker may ask it; nicks and uids are kept for a minute."""

    def __init__(
        self, bus: BusClient, own: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._bus = bus
        self._own = own
        self._clock = clock
        self._known: OrderedDict[str, tuple[float, Sender]] = OrderedDict()

    async def uid_of(self, address: str) -> str:
        """The uid behind `@nick` or `@nick.org`, or a uid as it is.

        Raises:
            UnknownRecipient: no agent of the organisation has that nick.
            NotLetIn: there is no such agent in another one, or it has not let this worker in.
        """
        if UID.fullmatch(address):
            return address
        if not address.startswith("@"):
            raise InvalidInput(f"{address[:80]!r} is not an address", remedy="use @nick or a uid")
        check_address(address[1:])
        return (await self._lookup(address)).uid

    async def describe(self, uid: str) -> Sender:
        """Nick and kind of `uid`; the uid alone if the control plane does not answer."""
        if uid == CONTROL_PLANE:
            return Sender(uid, CONTROL_PLANE, "service")
        try:
            return await self._lookup(uid, NAME_TIMEOUT)
        except PostroomError as error:
            _log.info("no name for %s: %s", uid, error)
            return Sender(uid)

    async def find(self, skill: str = "") -> list[dict[str, Any]]:
        """Agents with a card, of all skills or with `skill`; entries as the control plane gives them."""
        answer = await ask_control(self._bus, self._own, "cards.find", {"skill": skill})
        found = answer.get("agents")
        if not isinstance(found, list):
            raise ProtocolViolation("the control plane's answer lists no agents")
        return found

    async def thread(self, thread: str) -> list[dict[str, Any]]:
        """The newest messages of a conversation that this worker sent or got, oldest first.

        Raises:
            PostroomError: the control plane cannot be asked.
        """
        answer = await ask_control(self._bus, self._own, "messages.thread", {"thread": thread})
        found = answer.get("messages")
        if not isinstance(found, list):
            raise ProtocolViolation("the control plane's answer lists no messages")
        return found

    async def entry(self, ref: str) -> dict[str, Any]:
        """The control plane's entry of the agent at `@nick` or a uid, with its card.

        Raises:
            NotFound: no such agent, or it has no card.
        """
        return await ask_control(self._bus, self._own, "cards.get", {"ref": ref})

    async def _lookup(self, ref: str, timeout: float = 5.0) -> Sender:
        kept = self._known.get(ref)
        if kept is not None and self._clock() - kept[0] < LIFETIME:
            return kept[1]
        answer = await ask_control(
            self._bus, self._own, "agents.resolve", {"ref": ref}, timeout=timeout
        )
        found = Sender(str(answer.get("uid")), str(answer.get("nick")), str(answer.get("kind")))
        if not is_uid(found.uid) or (not ref.startswith("@") and found.uid != ref):
            raise ProtocolViolation(f"the control plane's answer names no agent for {ref}")
        self._known[ref] = (self._clock(), found)
        self._known.move_to_end(ref)
        while len(self._known) > CAPACITY:
            self._known.popitem(last=False)
        return found
