"""Tasks that this worker's agent asks of others.

The request goes through the other's inbox; what becomes of it comes back from the control plane, on the priority lane.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable
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
from postroom.sidecar.adapters import Sender
from postroom.sidecar.agent import AgentGone, AgentProgram
from postroom.sidecar.bus import BACKOFF
from postroom.sidecar.directory_client import DirectoryClient
from postroom.sidecar.keys import Key
from postroom.sidecar.outgoing import Outgoing, OutgoingMessage
from postroom.sidecar.task_client import TaskClient
from postroom.tasks.log import StoredTask
from postroom_a2a.task_state import INTERRUPTED
from postroom_a2a.tasks import artifacts_of, status_text

REMEMBERED = 4096
"""Delegated tasks whose last news are remembered."""

UNTOLD = 64
"""News that wait for an agent that does not read; more are left out. How a task ends never is."""

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Delegated:
    """A request for a task is stored.

    Attributes:
        id: of the request, which is a message.
        again: it may have been asked for before, so the agent may have been told what became of it.
    """

    id: str
    task: str
    worker: Sender
    again: bool = False


class NotDelivered(PostroomError):
    """There is no agent to read the news; a later start of the worker has one. Internal to the sidecar."""

    code = "untold"


@dataclass(slots=True)
class _Delegation:
    """`told`: sequence of the last news that the agent has read; `turn`: one by one; `quiet`: by `Delegate`."""

    ref: Any = None
    quiet: bool = False
    told: int = 0
    news: asyncio.Event = field(default_factory=asyncio.Event)
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


class Delegations:
    """The requester's side of tasks.

    Args:
        directory: finds and names other agents.
        ledger: what the control plane knows of tasks.
        changes: who follows a task is told of news.
    """

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
        self._untold = 0

    async def recipient(self, address: str) -> Sender:
        """The agent at `@nick` or a uid.

        Raises:
            InvalidInput: it is a person.
            PostroomError: the control plane did not answer.
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
            InvalidInput: no skill is named.
            NotFound: there is nobody.
            PostroomError: the control plane did not answer.
        """
        if not skill:
            raise InvalidInput("a task needs somebody to do it", remedy="name an agent or a skill")
        return await self._task_client.choose(skill, key.text)

    async def delegate(self, action: Delegate, worker: Sender, key: Key) -> Delegated:
        """Ask `worker` for a task; returns when the request is on disk.

        Raises:
            PostroomError: it was not accepted, or that is not known.
        """
        request = TaskRequest(action.skill, action.stream)
        draft = OutgoingMessage(
            worker.uid,
            action.text,
            expects_reply=True,
            context=action.context,
            request=request,
            named=action.named,
        )
        sent = await self._outgoing.message(draft, key)
        task = task_id(worker.uid, self._own, sent)
        known = self._remember(task)
        known.ref, known.quiet = action.ref, action.quiet
        return Delegated(sent, task, worker, again=key.again)

    async def tell(self, update: Update) -> None:
        """Hand news to the agent; returns when it has read them. Old news are left out.

        Raises:
            Untold: the worker is being stopped; its next start is to tell.
        """
        known = self._remember(update.task)
        known.news.set()
        known.news = asyncio.Event()
        self._changes.told(update.task, update.sequence)
        if known.quiet and not update.state.terminal:
            return
        if not update.state.terminal and self._untold >= UNTOLD:
            # Also a question: who asks again and again must not fill the lane that cancels come by.
            return
        self._untold += 1
        try:
            # The same news may come again while the agent does not read: they are done with when it has read them.
            async with known.turn:
                if update.sequence > known.told:
                    worker = await self._directory.describe(update.worker)
                    await self._hand_over(_news(update, worker, known.ref))
                    known.told = update.sequence
        finally:
            self._untold -= 1

    async def _hand_over(self, record: dict[str, Any]) -> None:
        while True:
            try:
                session = await self._agent.running()
            except AgentGone as error:
                await self._agent.stopping()
                raise NotDelivered("no agent has read the news") from error
            try:
                await session.hand_over(record)
            except BrokenPipeError:
                await session.ended.wait()  # the next run of the agent is told
            else:
                return

    async def recall(self, task: str, worker: Sender, ref: Any) -> dict[str, Any] | None:
        """What to tell an agent that asks again for a task that has ended or asks already; None if it has not.

        It may have been told before, and have forgotten it when it was started anew. A control plane that is away is
        waited for.
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
        return _news(update, worker, ref)

    async def _stored(self, task: str) -> StoredTask | None:
        failures = 0
        while True:
            try:
                return await self._task_client.get(task)
            except (NoResponders, RequestTimeout, BusDisconnected) as error:
                failures += 1
                _log.warning("what became of task %s is not known yet: %s", task, error)
                await asyncio.sleep(BACKOFF.delay(failures))
            except PostroomError as error:
                _log.info("what became of task %s is not known: %s", task, error)
                return None

    async def view(self, task: str, *, wait: bool, timeout: float) -> dict[str, Any]:
        """A task as people are shown it; with `wait` when it is settled, at most `timeout` seconds.

        Raises:
            NotFound: this worker neither runs it nor asked for it.
            PostroomError: the control plane did not answer.
        """
        end = asyncio.get_running_loop().time() + timeout
        while True:
            news = self._remember(task).news
            view = await self._task_client.view(task)
            left = end - asyncio.get_running_loop().time()
            if not wait or view["final"] or view["state"] in INTERRUPTED or left <= 0:
                return view
            try:
                async with asyncio.timeout(left):
                    await news.wait()
            except TimeoutError:
                continue

    def _remember(self, task: str) -> _Delegation:
        known = self._known.setdefault(task, _Delegation())
        self._known.move_to_end(task)
        while len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        return known


def _news(update: Update, worker: Sender, ref: Any) -> dict[str, Any]:
    event = update.update
    task = event.get("task")
    record: dict[str, Any] = {
        "type": "task_update",
        "task": update.task,
        "ref": ref,
        "from": {"uid": worker.uid, "nick": worker.nick, "kind": worker.kind},
        "state": update.state.value,
        "final": update.state.terminal,
        "attempt": update.attempt,
        "seq": update.sequence,
        "text": "",
        "artifacts": [],
        "artifact": None,
    }
    if isinstance(task, dict):
        record["text"] = status_text(task)
        record["artifacts"] = artifacts_of(task)
    elif isinstance(event.get("statusUpdate"), dict):
        record["text"] = status_text(event["statusUpdate"])
    elif isinstance(event.get("artifactUpdate"), dict):
        record["artifact"] = _piece(event["artifactUpdate"])
    return record


def _piece(update: dict[str, Any]) -> dict[str, Any]:
    pieces: Iterable[dict[str, Any]] = artifacts_of({"artifacts": [update.get("artifact", {})]})
    flags = {"append": bool(update.get("append")), "last": bool(update.get("lastChunk"))}
    return {**next(iter(pieces)), **flags}
