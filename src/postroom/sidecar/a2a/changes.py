"""Following a task: each change once, none left out, by whichever way it arrives.

The records of a task are a chain, in which each names the one before. So a change that follows the last one shown can
be shown at once, whatever its source; for any other, the follower reads the gap from the control plane. The end of a
task, or its question, is shown only as the control plane has it.

What another worker streams (`LivePeers`) is quick and proves nothing: frames may be lost, and it may send anything. So
it only feeds `TaskChanges`. If it does not answer or is killed, the control plane's changes go on where it stopped.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from postroom.errors import (
    BusDisconnected,
    InvalidInput,
    NoResponders,
    PostroomError,
    ProtocolViolation,
    RequestTimeout,
)
from postroom.observe import get_logger
from postroom.protocol.intervals import CALL_SILENCE
from postroom.protocol.limits import MAX_TASK_VALUES, TASK_DEPTH
from postroom.sidecar.bus import BACKOFF
from postroom.tasks.records import TaskRecord
from postroom_a2a.binding.frames import Request, Response
from postroom_a2a.json_operations import VERSION
from postroom_a2a.live.calling import Caller
from postroom_a2a.operations import Call
from postroom_a2a.rpc import RpcError
from postroom_a2a.strict_json import TooMuch, check, dumps
from postroom_a2a.task_state import TaskState
from postroom_a2a.tasks import Event, Task, state_of

UNSEEN = 16
"""Changes that wait for one follower; if there are more, it reads the stored ones again."""

LOOK = 20.0
"""Seconds between two looks at the stored changes: those heard otherwise may be lost or false."""

SEQUENCE = "urn:postroom:a2a:sequence:1"
"""Key in the metadata of a streamed event: `sequence` of its record, and `after`, the sequence of the one before."""

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class TaskChange:
    """A stored change of a task.

    Attributes:
        after: sequence of the record before it.
        event: A2A StreamResponse; None for the first record of a task.
        proven: the change was read from the log, or stored by this worker.
    """

    after: int
    sequence: int
    state: TaskState
    event: Event | None = field(hash=False)
    proven: bool = True

    @property
    def settled(self) -> bool:
        """Whether the task has ended or asks."""
        return self.state.terminal or self.state.interrupted


@dataclass(frozen=True, slots=True)
class Page:
    """Successive changes of a task; `sequence` is its last record's, `task` its state after that."""

    changes: tuple[TaskChange, ...]
    more: bool
    sequence: int
    state: TaskState
    task: Task = field(hash=False)


class Records(Protocol):
    """The stored changes of tasks."""

    async def changes(self, task_id: str, after: int, /) -> Page:
        """The stored changes past sequence `after`."""
        ...


class _Watch:
    """The changes that one follower has not seen yet."""

    def __init__(self) -> None:
        self._heard: deque[TaskChange] = deque()
        self._changed = asyncio.Event()
        self.newest = 0
        self.overrun = False

    def put(self, change: TaskChange) -> None:
        if len(self._heard) >= UNSEEN:
            self.overrun = True
        else:
            self._heard.append(change)
        self._changed.set()

    def look(self) -> None:
        self.overrun = True
        self._changed.set()

    def note(self, sequence: int) -> None:
        self.newest = max(self.newest, sequence)
        self._changed.set()

    def next(self) -> TaskChange | None:
        return self._heard.popleft() if self._heard else None

    def forget(self) -> None:
        self._heard.clear()
        self.newest = 0
        self.overrun = False

    async def wait(self, until: float) -> bool:
        """Whether anything came before `until` of the loop's clock."""
        try:
            async with asyncio.timeout_at(until):
                await self._changed.wait()
        except TimeoutError:
            return False
        self._changed.clear()
        return True


class TaskChanges:
    """Passes changes of tasks to their followers."""

    def __init__(self) -> None:
        self._watches: dict[str, set[_Watch]] = {}

    def stored(self, record: TaskRecord, after: int, sequence: int) -> None:
        """This worker has stored a record."""
        begun = record.event is None and record.state is not TaskState.SUBMITTED
        event = _status(record.task) if begun else record.event
        self.put(record.id, TaskChange(after, sequence, record.state, event))

    def put(self, task: str, change: TaskChange) -> None:
        """Pass on a change."""
        for watch in self._watches.get(task, ()):
            watch.put(change)

    def note(self, task: str, sequence: int) -> None:
        """Tell the followers that the log has a record of that sequence."""
        for watch in self._watches.get(task, ()):
            watch.note(sequence)

    def look(self, task: str) -> None:
        """Let the followers read the stored changes: they may have missed one."""
        for watch in self._watches.get(task, ()):
            watch.look()

    @property
    def followers(self) -> int:
        """The number of followers, of all tasks."""
        return sum(map(len, self._watches.values()))

    @contextmanager
    def _watching(self, task: str) -> Generator[_Watch]:
        watch = _Watch()
        self._watches.setdefault(task, set()).add(watch)
        try:
            yield watch
        finally:
            self._watches[task].discard(watch)
            if not self._watches[task]:
                del self._watches[task]

    async def follow(self, records: Records, task: str, after: int) -> AsyncGenerator[TaskChange]:
        """The changes after the record of sequence `after`, each once, up to the task's end.

        Waits for a control plane that is away; the caller sets the deadline.

        Raises:
            NotFound: the task is deleted.
        """
        clock = asyncio.get_running_loop().time
        failures, look, proven = 0, 0.0, after
        with self._watching(task) as watch:
            behind = True
            while True:
                if behind or watch.overrun or clock() >= look:
                    watch.forget()
                    try:
                        page = await records.changes(task, after)
                    except (NoResponders, RequestTimeout, BusDisconnected) as error:
                        failures += 1
                        _log.info("the changes of task %s are not known yet: %s", task, error)
                        await asyncio.sleep(BACKOFF.delay(failures))
                        continue
                    failures, behind, look = 0, page.more, clock() + LOOK
                    missed = page.state.terminal and not page.changes
                    if proven < after and (page.sequence < after or missed):
                        # The peer has numbered changes that do not exist: the log is right.
                        after, behind = proven, True
                        continue
                    for change in page.changes:
                        yield change
                    if missed:  # its records are deleted
                        yield TaskChange(
                            page.sequence, page.sequence, page.state, _status(page.task)
                        )
                    after = proven = page.changes[-1].sequence if page.changes else page.sequence
                    if page.state.terminal and not page.more:
                        return
                    continue
                change = watch.next()
                if change is None:
                    behind = watch.newest > after or (not await watch.wait(look))
                    behind = behind or watch.newest > after
                elif change.sequence > after:
                    if change.after != after or (change.settled and not change.proven):
                        behind = True
                        continue
                    yield change
                    after = change.sequence
                    proven = after if change.proven else proven
                    if change.state.terminal:
                        return


def _status(task: Task) -> Event:
    update = {"taskId": task["id"], "contextId": task["contextId"], "status": task["status"]}
    return {"statusUpdate": update}


def numbered(event: Event, after: int, sequence: int) -> Event:
    """An event with the sequences of its record and of the one before."""
    ((kind, said),) = event.items()
    number = {SEQUENCE: {"after": after, "sequence": sequence}}
    return {kind: {**said, "metadata": {**said.get("metadata", {}), **number}}}


PEERS = 64
"""Agents whose answers can be received at a time."""

MOST_NESTED = TASK_DEPTH + 8
"""Nested objects and arrays in an answer, which contains a task."""

MOST_INSIDE = 2 * MAX_TASK_VALUES
"""Values in an answer. Each takes up to a hundred times its bytes in memory; larger tasks can be read from the log."""

NewCaller = Callable[[str], Caller]
"""Makes a caller for the agent with that uid."""


class LivePeers:
    """Live calls to other agents, whose streams feed `changes`."""

    def __init__(self, caller: NewCaller, changes: TaskChanges, own: str) -> None:
        self._own = own
        self._new = caller
        self._changes = changes
        self._callers: OrderedDict[str, Caller] = OrderedDict()

    async def close(self) -> None:
        """Close all callers."""
        while self._callers:
            await self._callers.popitem()[1].close()

    async def call(self, worker: str, call: Call) -> Any:
        """The result of a call.

        Raises:
            RpcError: the agent's answer, or the agent does not run.
        """
        caller = await self._caller(worker)
        try:
            response = await caller.call(_request(call), timeout=CALL_SILENCE)
        except NoResponders as error:
            raise _unserved(worker) from error
        return _result(response)

    async def stream(self, worker: str, call: Call) -> AsyncGenerator[Any, None]:
        """The results of a call that streams. Raises as `call`."""
        caller = await self._caller(worker)
        try:
            async with aclosing(caller.stream(_request(call), timeout=CALL_SILENCE)) as responses:
                async for response in responses:
                    yield _result(response)
        except NoResponders as error:
            raise _unserved(worker) from error

    async def follow(
        self, records: Records, task: str, after: int, worker: str
    ) -> AsyncGenerator[TaskChange, None]:
        """As `TaskChanges.follow`, sooner while another worker streams the task."""
        if worker == self._own:
            async with aclosing(self._changes.follow(records, task, after)) as changes:
                async for change in changes:
                    yield change
            return
        feeding = asyncio.create_task(self._feed(task, worker))
        try:
            async with aclosing(self._changes.follow(records, task, after)) as changes:
                async for change in changes:
                    yield change
        finally:
            feeding.cancel()
            await asyncio.wait({feeding})
            if not feeding.cancelled() and (failure := feeding.exception()):
                _log.error("following task %s failed", task, exc_info=failure)

    async def _feed(self, task: str, worker: str) -> None:
        call = Call(None, "SubscribeToTask", {"id": task})
        begun = False
        try:
            async with aclosing(self.stream(worker, call)) as results:
                async for result in results:
                    if not begun:
                        self._changes.look(task)  # the stream lacks the changes before its begin
                        begun = True
                    if (change := _change(result, task)) is not None:
                        self._changes.put(task, change)
        except (RpcError, PostroomError) as error:
            _log.info("no live stream of task %s, its changes come from the log: %s", task, error)
        self._changes.look(task)  # the stream lacks the changes from now on

    async def _caller(self, worker: str) -> Caller:
        caller = self._callers.pop(worker, None) or self._new(worker)
        self._callers[worker] = caller
        if len(self._callers) > PEERS:
            await self._callers.popitem(last=False)[1].close()
        return caller


def _request(call: Call) -> Request:
    version = {"A2A-Version": VERSION, **call.parameters}
    return Request(secrets.token_hex(8), call.method, call.params, parameters=version)


def _result(response: Response) -> Any:
    if response.error is not None:
        raise response.error
    # A deeper answer could be read here but not written again.
    try:
        check(dumps(response.result), MOST_NESTED, MOST_INSIDE)
    except (TooMuch, RecursionError) as error:
        raise ProtocolViolation("the peer's answer has too much in it") from error
    return response.result


def _unserved(worker: str) -> RpcError:
    return RpcError.of(NoResponders(f"nobody serves {worker} at the moment"))


def _change(result: Any, task: str) -> TaskChange | None:
    """The change of `task` in a frame; None for the task itself, with which a stream begins."""
    match result:
        case dict() if len(result) != 1:
            pass
        case {"task": _}:
            return None
        case {
            "statusUpdate": {"taskId": about, "metadata": dict(metadata), "status": dict(status)}
        }:
            if about == task:
                return _numbered(result, metadata, _state(status))
        case {"artifactUpdate": {"taskId": about, "metadata": dict(metadata), "artifact": dict()}}:
            if about == task:
                return _numbered(result, metadata, TaskState.WORKING)
    raise ProtocolViolation("the peer streams something that is not a change of the task")


def _numbered(event: Event, metadata: dict[str, Any], state: TaskState) -> TaskChange:
    match metadata.get(SEQUENCE):
        case {"after": int(after), "sequence": int(sequence)} if 0 <= after < sequence < 2**53:
            return TaskChange(after, sequence, state, _bare(event), proven=False)
    raise ProtocolViolation("the peer streams a change without a number")


def _state(status: dict[str, Any]) -> TaskState:
    try:
        return state_of({"status": status})
    except InvalidInput as error:
        raise ProtocolViolation(str(error)) from error


def _bare(event: Event) -> Event:
    """The event as it is stored: without its number."""
    ((kind, said),) = event.items()
    metadata = {name: value for name, value in said["metadata"].items() if name != SEQUENCE}
    kept = {name: value for name, value in said.items() if name != "metadata"}
    return {kind: {**kept, "metadata": metadata} if metadata else kept}
