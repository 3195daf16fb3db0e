"""Tasks that this worker's agent asks of others.

The request goes to the other agent's inbox; the control plane sends updates of the task on the priority lane.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

from postroom.errors import (
    BusDisconnected,
    InvalidInput,
    NoResponders,
    PostroomError,
    RequestTimeout,
)
from postroom.observe import get_logger
from postroom.protocol.envelope import TaskRequest
from postroom.protocol.priority import Update
from postroom.protocol.tasks import task_id
from postroom.protocol.verbs import Delegate
from postroom.sidecar.a2a.changes import TaskChanges
from postroom.sidecar.adapters import Sender, said_in
from postroom.sidecar.agent import AgentGone, AgentProgram
from postroom.sidecar.bus import BACKOFF
from postroom.sidecar.ctl import DirectoryClient, TaskClient
from postroom.sidecar.keys import Key
from postroom.sidecar.outgoing import Outgoing, OutgoingMessage
from postroom.tasks.log import StoredTask
from postroom_a2a.task_state import INTERRUPTED
from postroom_a2a.tasks import artifacts_of

MAX_REMEMBERED = 4096
"""Delegated tasks whose last update is remembered."""

MAX_WAITING = 64
"""Updates that wait for an agent that does not read; further ones are dropped, but never the end of a task."""

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Delegated:
    """A stored request for a task.

    Attributes:
        id: of the request, which is a message.
        again: the task may have been asked for before, so that updates of it may have been delivered.
        repeated: it was asked for before, as far as the log knows.
    """

    id: str
    task: str
    worker: Sender
    again: bool = False
    repeated: bool = False


class NotDelivered(PostroomError):
    """No agent will read the update in this run of the worker; the next run delivers it. Internal to the sidecar."""

    code = "untold"


@dataclass(slots=True)
class _Delegation:
    """A known task: `delivered` is the sequence of the last update that the agent has read."""

    ref: Any = None
    quiet: bool = False
    delivered: int = 0
    updated: asyncio.Event = field(default_factory=asyncio.Event)
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


class Delegations:
    """The requester's side of tasks."""

    def __init__(
        self,
        agent: AgentProgram,
        directory: DirectoryClient,
        outgoing: Outgoing,
        task_client: TaskClient,
        changes: TaskChanges,
        own: str,
    ) -> None:
        self._agent = agent
        self._directory = directory
        self._outgoing = outgoing
        self._task_client = task_client
        self._changes = changes
        self._own = own
        self._known: OrderedDict[str, _Delegation] = OrderedDict()
        self._waiting = 0

    async def recipient(self, address: str) -> Sender:
        """The agent at `@nick` or a uid.

        Raises:
            InvalidInput: the address is a person's.
        """
        found = await self._directory.describe(await self._directory.uid_of(address))
        if found.kind == "human":
            raise InvalidInput(
                f"@{found.nick} is a person, and tasks are for agents", remedy="send a message"
            )
        return found

    async def chosen(self, skill: str, key: Key) -> Sender:
        """Another agent that has the skill; the same one again under the same key.

        Raises:
            NotFound: no agent has it.
        """
        if not skill:
            raise InvalidInput("the task has no recipient", remedy="name an agent or a skill")
        return await self._task_client.choose(skill, key.text)

    async def delegate(
        self, action: Delegate, worker: Sender, key: Key, cause: str = "", trace: str = ""
    ) -> Delegated:
        """Ask `worker` for a task; returns when the request is on disk.

        Args:
            cause: id of the task for which it is asked, "" for none that is known.
            trace: that this belongs to, "" for none.
        """
        request = TaskRequest(action.skill, action.stream)
        draft = OutgoingMessage(
            worker.uid,
            action.content.referring(cause).traced(trace),
            expects_reply=True,
            request=request,
            named=action.named,
        )
        sent, repeated = await self._outgoing.message(draft, key)
        task = task_id(worker.uid, self._own, sent)
        known = self._remember(task)
        known.ref, known.quiet = action.ref, action.quiet
        return Delegated(sent, task, worker, again=key.again, repeated=repeated)

    async def deliver(self, update: Update) -> None:
        """Hand an update to the agent, unless it has read a later one; returns when it has read the update.

        Raises:
            NotDelivered: the worker is being stopped; its next run delivers the update.
        """
        known = self._remember(update.task)
        known.updated.set()
        known.updated = asyncio.Event()
        self._changes.note(update.task, update.sequence)
        if known.quiet and not update.state.terminal:
            return
        if not update.state.terminal and self._waiting >= MAX_WAITING:
            # Questions are dropped, too: a task that asks again and again must not fill the lane of the cancels.
            return
        self._waiting += 1
        try:
            # The bus may deliver the same update again while the agent does not read.
            async with known.turn:
                if update.sequence > known.delivered:
                    worker = await self._directory.describe(update.worker)
                    await self._hand_over(_update_record(update, worker, known.ref))
                    known.delivered = update.sequence
        finally:
            self._waiting -= 1

    async def _hand_over(self, record: dict[str, Any]) -> None:
        while True:
            try:
                session = await self._agent.running()
            except AgentGone as error:
                await self._agent.stopping()
                raise NotDelivered("no agent has read the update of the task") from error
            try:
                await session.hand_over(record)
            except BrokenPipeError:
                await session.ended.wait()  # the next run of the agent gets it
            else:
                return

    async def recall(self, task: str, worker: Sender, ref: Any) -> dict[str, Any] | None:
        """The record for an agent that asks again for a task that has ended or asks already; else None.

        An agent that was started anew has forgotten the record that it got before. Waits for a control plane that is
        away.
        """
        stored = await self._stored(task)
        if stored is None:
            return None
        record = stored.record
        if not (record.state.terminal or record.state.interrupted):
            return None
        update = Update(
            task,
            worker.uid,
            record.request,
            stored.sequence,
            record.attempt,
            record.state,
            {"task": record.task},
        )
        return _update_record(update, worker, ref)

    async def _stored(self, task: str) -> StoredTask | None:
        failures = 0
        while True:
            try:
                return await self._task_client.get(task)
            except (NoResponders, RequestTimeout, BusDisconnected) as error:
                failures += 1
                _log.warning("the state of task %s is not known yet: %s", task, error)
                await asyncio.sleep(BACKOFF.delay(failures))
            except PostroomError as error:
                _log.info("the state of task %s is not known: %s", task, error)
                return None

    async def view(self, task: str, *, wait: bool, timeout: float) -> dict[str, Any]:
        """A task's TaskView; `wait`: after at most `timeout` seconds, when the task has ended or asks."""
        end = asyncio.get_running_loop().time() + timeout
        while True:
            updated = self._remember(task).updated
            view = await self._task_client.view(task)
            left = end - asyncio.get_running_loop().time()
            if not wait or view["final"] or view["state"] in INTERRUPTED or left <= 0:
                return view
            try:
                async with asyncio.timeout(left):
                    await updated.wait()
            except TimeoutError:
                continue

    def _remember(self, task: str) -> _Delegation:
        known = self._known.setdefault(task, _Delegation())
        self._known.move_to_end(task)
        while len(self._known) > MAX_REMEMBERED:
            self._known.popitem(last=False)
        return known


def _update_record(update: Update, worker: Sender, ref: Any) -> dict[str, Any]:
    event = update.update
    task = event.get("task")
    record: dict[str, Any] = {
        "type": "task_update",
        "task": update.task,
        "ref": ref,
        "from": worker.as_json(),
        "state": update.state.value,
        "final": update.state.terminal,
        "attempt": update.attempt,
        "seq": update.sequence,
        "text": "",
        "parts": [],
        "artifacts": [],
        "artifact": None,
    }
    if isinstance(task, dict):
        record |= _said(task)
        record["artifacts"] = _artifacts(task)
    elif isinstance(event.get("statusUpdate"), dict):
        record |= _said(event["statusUpdate"])
    elif isinstance(event.get("artifactUpdate"), dict):
        record["artifact"] = _piece(event["artifactUpdate"])
    return record


def _piece(update: dict[str, Any]) -> dict[str, Any]:
    flags = {"append": bool(update.get("append")), "last": bool(update.get("lastChunk"))}
    return {**_artifacts({"artifacts": [update.get("artifact", {})]})[0], **flags}


def _said(holder: dict[str, Any]) -> dict[str, Any]:
    """What the agent said with a state."""
    status = holder.get("status")
    message = status.get("message") if isinstance(status, dict) else None
    text, parts = said_in(message) if isinstance(message, dict) else ("", ())
    return {"text": text, "parts": list(parts)}


def _artifacts(task: dict[str, Any]) -> list[dict[str, Any]]:
    """The artifacts as `artifacts_of`, with their parts."""
    return [
        {**shown, "parts": artifact.get("parts", [])}
        for shown, artifact in zip(artifacts_of(task), task.get("artifacts", ()), strict=True)
    ]
