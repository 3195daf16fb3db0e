"""An `AgentExecutor` of the A2A SDK, as it is, as an executor of durable tasks.

What it enqueues is stored when `enqueue_event` returns. It is called for a request, again from the start if its
worker died, and again with each answer to a question of its own; so between two calls it need remember nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field

from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.context import ServerCallContext
from a2a.server.events import Event as SdkEvent
from a2a.server.events import EventQueue
from a2a.utils.errors import InvalidAgentResponseError

from a2a import types
from postroom.errors import Conflict, InvalidInput, LostUpdate, MessageTooLarge
from postroom.observe import get_logger
from postroom.oldsdk import translate
from postroom.tasks.execution import Execution
from postroom.tasks.log import AttemptLost
from postroom_a2a import tasks
from postroom_a2a.sdk.users import Requester
from postroom_a2a.task_state import TaskState
from postroom_a2a.tasks import Event
from postroom_a2a.times import format_time

GRACE = 5.0
"""Seconds that an executor has to end when it is told so."""

LINGER = 30.0
"""Seconds that an executor may go on after its task has ended or asked something."""

MAX_FAILURE = 1000
"""Characters of an exception's text that a failed task shows."""

ATTEMPT = "postroom.attempt"
"""Key in the state of the call context: how many times the task was begun, with this one."""

_log = get_logger(__name__)


class ExecutionQueue(EventQueue):
    """Stores what an executor says of its one task.

    What comes after the task has ended is dropped, as the SDK's own queue drops it; what does not belong to the
    task at all raises the SDK's `InvalidAgentResponseError`.
    """

    def __init__(self, execution: Execution) -> None:
        self._execution = execution
        self._closed = False
        # In an earlier call it said so much that it asked something.
        self._told = len(execution.task.get("history", ())) > 1

    def close(self) -> None:
        """Drop what comes from now on."""
        self._closed = True

    async def enqueue_event(self, event: SdkEvent) -> None:
        """Store an event; on return it is on disk.

        Raises:
            InvalidAgentResponseError: it is none that may come now, or of another task.
            LostUpdate: somebody else has changed the task; there is nothing more to be done for it.
            MessageTooLarge: the task would be too large; it was not stored.
        """
        if self._closed or self._execution.settled.is_set():
            self._drop(event)
            return
        try:
            for change in self._changes(event):
                await self._execution.put(change)
        except Conflict:
            self._drop(event)

    def _drop(self, event: SdkEvent) -> None:
        kind = type(event).__name__
        _log.warning("task %s is over for its agent: %s dropped", self._execution.id, kind)

    def _changes(self, event: SdkEvent) -> Iterator[Event]:
        match event:
            case types.Message():
                yield self._answered(event)
            case types.Task():
                yield from self._begun(event)
            case types.TaskStatusUpdateEvent():
                self._told = True
                yield from self._status(translate.event_json(event))
            case types.TaskArtifactUpdateEvent():
                self._told = True
                yield self._artifact(translate.event_json(event))
            case _:
                raise InvalidAgentResponseError(f"{type(event).__name__} is no event of a task")

    def _answered(self, message: types.Message) -> Event:
        if self._told:
            raise InvalidAgentResponseError("a Message after a Task: send a status or an artifact")
        said = translate.to_json(message) | self._ids()
        at = self._execution.now()
        return tasks.status_update(self._execution.task, TaskState.COMPLETED, at, said)

    def _begun(self, task: types.Task) -> Iterator[Event]:
        self._check(task.id, task.context_id)
        if self._told:
            _log.warning("task %s exists already: its replacement is dropped", self._execution.id)
            return
        self._told = True
        for artifact in translate.artifacts_json(task):
            yield self._artifact({"artifactUpdate": {"artifact": artifact, "lastChunk": True}})
        if task.status.state:
            update = types.TaskStatusUpdateEvent(status=task.status)
            yield from self._status(translate.event_json(update))

    def _status(self, event: Event) -> Iterator[Event]:
        update = event["statusUpdate"]
        self._check(update.get("taskId", ""), update.get("contextId", ""))
        status = dict(update.get("status", {}))
        if "state" not in status:
            raise InvalidAgentResponseError("a status update without a state")
        if status["state"] == TaskState.SUBMITTED.a2a:
            status["state"] = TaskState.WORKING.a2a  # nothing goes back: the attempt has begun
        status.setdefault("timestamp", format_time(self._execution.now()))
        same = status["state"] == self._execution.state.a2a
        if same and "message" not in status and not update.get("metadata"):
            return  # it is stored already
        yield {"statusUpdate": update | self._ids() | {"status": status}}

    def _artifact(self, event: Event) -> Event:
        update = event["artifactUpdate"]
        self._check(update.get("taskId", ""), update.get("contextId", ""))
        name = update["artifact"].get("artifactId")
        if not name:
            raise InvalidAgentResponseError("an artifact without an id")
        known = self._execution.task.get("artifacts", ())
        if update.get("append") and not any(each["artifactId"] == name for each in known):
            raise InvalidAgentResponseError(f"there is no artifact {name!r} to append to")
        return {"artifactUpdate": update | self._ids()}

    def _ids(self) -> dict[str, str]:
        return {"taskId": self._execution.id, "contextId": self._execution.context}

    def _check(self, task: str, context: str) -> None:
        if task not in {"", self._execution.id}:
            raise InvalidAgentResponseError(f"an event of task {task!r}, not {self._execution.id}")
        if context not in {"", self._execution.context}:
            raise InvalidAgentResponseError(f"an event of another context, {context!r}")


@dataclass(eq=False, slots=True)
class _Turn:
    """One call of `execute`."""

    execution: Execution
    queue: ExecutionQueue
    work: asyncio.Task[None]
    stop: asyncio.Event = field(default_factory=asyncio.Event)


class SdkExecutor:
    """Works on tasks by an `AgentExecutor`, which knows nothing of it; an `Executor` for `TaskEngine`.

    Its exception makes the task fail, and is not tried again. A task that asks something is over until the answer
    comes, so an executor that waits inside `execute` for an authentication is ended after `linger`.

    Args:
        agent: of the SDK.
        grace: seconds to end in when told so.
        linger: seconds to return in when the task has ended or asks something.
    """

    def __init__(
        self, agent: AgentExecutor, *, grace: float = GRACE, linger: float = LINGER
    ) -> None:
        self._agent = agent
        self._grace = grace
        self._linger = linger
        self._turns: dict[str, _Turn] = {}
        self._deaf: set[asyncio.Task[None]] = set()
        self._closing = False

    async def ready(self) -> None:
        """Return at once: the next task can always be handed over."""

    async def execute(self, execution: Execution) -> None:
        """Run the agent until it returns; what it enqueues is stored. A request that is no A2A Message is rejected.

        Raises:
            AttemptLost: `close` was called meanwhile.
        """
        try:
            context = _context(execution)
        except InvalidInput as error:
            await execution.say(TaskState.REJECTED, error.message)
            return
        queue = ExecutionQueue(execution)
        work = asyncio.create_task(self._agent.execute(context, queue))
        turn = self._turns[execution.id] = _Turn(execution, queue, work)
        try:
            await self._wait(turn)
        except asyncio.CancelledError:
            queue.close()
            raise
        finally:
            await self._end(work)
            queue.close()
            del self._turns[execution.id]
        if self._closing and not execution.settled.is_set() and not execution.canceling:
            raise AttemptLost("the worker was stopped")
        await self._conclude(execution, work)

    async def _wait(self, turn: _Turn) -> None:
        stop = asyncio.create_task(turn.stop.wait())
        settled = asyncio.create_task(turn.execution.settled.wait())
        try:
            first = {turn.work, stop, settled}
            await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
            if not (stop.done() or turn.execution.lost):
                rest, patience = {turn.work, stop}, self._linger
                await asyncio.wait(rest, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stop.cancel()
            settled.cancel()

    async def _end(self, work: asyncio.Task[None]) -> None:
        """Cancel it; one that does not mind is left alone, and nothing that it says is heard."""
        if not work.done():
            work.cancel()
            await asyncio.wait({work}, timeout=self._grace)
        if not work.done():
            _log.warning("an executor goes on though it was cancelled")
            self._deaf.add(work)
            work.add_done_callback(self._deaf.discard)

    async def _conclude(self, execution: Execution, work: asyncio.Task[None]) -> None:
        if not work.done() or work.cancelled():
            return
        error = work.exception()
        if error is None:
            return
        if execution.settled.is_set() or execution.canceling:
            _log.warning("the executor of task %s raised at its end: %r", execution.id, error)
            return
        _log.warning("the executor of task %s failed", execution.id, exc_info=error)
        text = f"the agent raised {type(error).__name__}: {error}"[:MAX_FAILURE]
        for said in (text, ""):
            try:
                await execution.say(TaskState.FAILED, said)
            except MessageTooLarge:
                continue
            except (Conflict, LostUpdate) as lost:
                _log.info("task %s is somebody else's: %s", execution.id, lost)
            return

    async def cancel(self, execution: Execution) -> str:
        """Tell the agent, then cancel its `execute`; both have `grace` seconds."""
        turn = self._turns.get(execution.id)
        if turn is not None and not turn.stop.is_set():
            task = translate.to_task(execution.task)
            await self._tell(_cancel_context(execution, task), turn.queue)
            turn.stop.set()
        return ""

    async def _tell(self, context: RequestContext, queue: ExecutionQueue) -> None:
        told = asyncio.create_task(self._agent.cancel(context, queue))
        await asyncio.wait({told}, timeout=self._grace)
        await self._end(told)
        if told.done() and not told.cancelled() and told.exception() is not None:
            # Many executors cannot be told; cancelling their `execute` does it then.
            _log.info("task %s: the agent's cancel raised %r", context.task_id, told.exception())

    async def forget(self, task_id: str) -> None:
        """Do nothing: between two calls the agent is not asked to keep anything."""

    async def close(self) -> None:
        """Stop what runs, so that another start of the worker goes on with it; `TaskEngine.stop` comes before."""
        self._closing = True
        for turn in self._turns.values():
            turn.queue.close()
            turn.stop.set()


def _call(execution: Execution) -> ServerCallContext:
    user = Requester(execution.record.requester)
    return ServerCallContext(user=user, state={ATTEMPT: execution.attempt})


def _context(execution: Execution) -> RequestContext:
    heard = execution.task["history"][-1]
    return RequestContext(
        _call(execution),
        translate.request(heard),
        task_id=execution.id,
        context_id=execution.context,
        task=translate.before_answer(execution.task),
    )


def _cancel_context(execution: Execution, task: types.Task) -> RequestContext:
    return RequestContext(
        _call(execution), task_id=execution.id, context_id=execution.context, task=task
    )
