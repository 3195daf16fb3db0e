"""Wakes those who wait in this process for something that the fold commits.

Nobody polls, and nobody reads again what was just folded: a waiter reads SQL once, and after that each change brings
the row as the fold wrote it. Only a listener that was too slow reads SQL again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from types import TracebackType
from typing import Any, Self, TypeVar

from postroom.errors import Refused

T = TypeVar("T")

Topic = tuple[str, ...]

FOLD_WAIT = 2.0
"""Seconds that a call waits for a record of its own to be folded, so that its answer shows it."""

MAX_WATCHES = 32_768
"""The most waiters at once; further ones are refused. The API takes more than 10,000 connections."""

LISTENER_LIMIT = 64
"""Changes that wait for a slow listener; beyond that they are dropped, and the listener gets a gap."""


def of_message(message_id: str) -> Topic:
    """Everything about the message with that id."""
    return ("message", message_id)


def of_agent(uid: str) -> Topic:
    """Everything that an agent sent or received."""
    return ("agent", uid)


def of_chat(one: str, other: str) -> Topic:
    """Everything between two agents."""
    return ("chat", *sorted((one, other)))


def of_project(project: str) -> Topic:
    """Posts of a project."""
    return ("project", project)


def of_outbox(uid: str) -> Topic:
    """Announcements of an agent."""
    return ("outbox", uid)


def of_task(task: str) -> Topic:
    """Everything about the task with that id."""
    return ("task", task)


def of_worker_events(uid: str) -> Topic:
    """Events of a worker's agent, and what people say to it."""
    return ("worker-events", uid)


def of_sessions(owner: str) -> Topic:
    """The sessions of a person: one has come, ended, or is called or stands otherwise."""
    return ("sessions", owner)


ALERTS: Topic = ("alerts",)
DEADLETTERS: Topic = ("deadletters",)
MAIL: Topic = ("mail",)
"""New messages to anyone."""
TASKS: Topic = ("tasks",)
"""New tasks, and every change of one."""
POSTS: Topic = ("posts",)
"""Posts of all projects."""
APPROVALS: Topic = ("approvals",)
"""An approval was asked for, or is settled."""
WORKERS: Topic = ("workers",)
"""A worker has started, ended, or reported another state."""
BUS: Topic = ("bus",)
"""The bus has gone, or is back."""


_ALONE = {"alert": ALERTS, "deadletter": DEADLETTERS, "worker": WORKERS, "bus": BUS}
"""Kinds of changes with one topic each."""


@dataclass(frozen=True, slots=True)
class Change:
    """A committed change.

    Attributes:
        kind: `mail` (new message), `receipt` (new state), `post`, `announcement`, `alert`, `deadletter`,
            `task`, `event`, `session`, `worker` or `bus`; the last three do not come from the log.
        seq: sequence of the record: in INBOX, FEED, OUTBOX, ALERTS, DEADLETTER or TASKS (0 for a new task); for
            events of a worker, which come a record at a time, the id of the last.
        id: of the message, the post, the announcement or the task; for events the id of an approval, if one of them
            makes or settles it: `row` tells which do; the uid of the session.
        sender: of the message, the post or the announcement; the requester of the task; the worker of the events;
            the owner of the session.
        recipient: of the message; the worker of the task.
        state: of the message or the task; of a session what has become of it: `added`, `renamed`, `ended`, or "" where
            it stands otherwise; else "".
        row: what the fold wrote: of the message, the post, the announcement, the dead letter or the task; for events
            a tuple of rows, oldest first; None where waiters need none.
        event: the record of the task that counted; None for a new task and for other kinds.
    """

    kind: str
    seq: int
    id: str = ""
    sender: str = ""
    recipient: str = ""
    project: str = ""
    state: str = ""
    row: Any = field(default=None, compare=False, repr=False)
    event: Any = field(default=None, compare=False, repr=False)

    @property
    def topics(self) -> tuple[Topic, ...]:
        """The topics whose waiters this change wakes."""
        if self.kind == "post":
            return (POSTS, of_project(self.project), of_message(self.id))
        if self.kind == "announcement":
            return (of_outbox(self.sender), of_message(self.id))
        if self.kind == "session":
            return (of_sessions(self.sender),)
        if (alone := _ALONE.get(self.kind)) is not None:
            return (alone,)
        if self.kind == "event":
            about = (APPROVALS,) if self.id else ()
            return (of_worker_events(self.sender), *about)
        agents = {of_agent(self.sender), of_agent(self.recipient)}
        if self.kind == "task":
            return (TASKS, of_task(self.id), *sorted(agents))
        topics = (of_message(self.id), of_chat(self.sender, self.recipient), *sorted(agents))
        if self.kind != "mail":
            return topics
        answered = self.row.reply_to if self.row is not None else ""
        return (MAIL, of_message(answered), *topics) if answered else (MAIL, *topics)


class Signal(Enum):
    """An answer to a listener that is not a change."""

    GAP = "gap"
    """Changes were dropped: read SQL again past the last sequence you have."""
    QUIET = "quiet"
    """Nothing happened within the timeout."""
    CLOSED = "closed"
    """There will be no more."""


class ChangeListener:
    """A bounded queue of changes for one reader; a context manager, made by `Changes.listen`.

    Ten thousand may wait at once, so it has no part before it needs it.
    """

    __slots__ = ("_changes", "_closed", "_gap", "_limit", "_only", "_topics", "_waiting", "_wake")

    def __init__(
        self,
        limit: int = LISTENER_LIMIT,
        changes: Changes | None = None,
        only: Callable[[Change], bool] | None = None,
    ) -> None:
        self._limit = limit
        self._changes = changes
        self._only = only
        self._topics: tuple[Topic, ...] = ()
        self._waiting: deque[Change] | None = None
        self._gap = False
        self._closed = False
        self._wake: asyncio.Future[None] | None = None

    def __enter__(self) -> Self:
        """Itself; leaving the block ends the listening."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._changes is not None:
            self._changes.forget(self, self._topics)
            self._changes = None

    def join(self, topics: tuple[Topic, ...]) -> None:
        """Listen to these topics, too."""
        if self._changes is not None:
            self._changes.add(self, topics)
            self._topics += topics

    async def next(self, timeout: float) -> Change | Signal:
        """The next change, or a signal."""
        if not (self._waiting or self._gap or self._closed):
            loop = asyncio.get_running_loop()
            self._wake = wake = loop.create_future()
            # Not `wait_for`: before Python 3.12 it loses a cancellation that comes with the result.
            timer = loop.call_later(timeout, _wake_up, wake)
            try:
                await wake
            finally:
                timer.cancel()
                self._wake = None
        if self._gap:
            self._gap = False
            return Signal.GAP
        if self._waiting:
            return self._waiting.popleft()
        return Signal.CLOSED if self._closed else Signal.QUIET

    async def until(
        self,
        read: Callable[[], Awaitable[T]],
        done: Callable[[T], bool],
        timeout: float,
        brought: Callable[[T, Change], T] | None,
    ) -> T:
        """As `Changes.until`, with the topics of this listener."""
        deadline = asyncio.get_running_loop().time() + timeout
        value = await read()
        while not done(value) and (left := deadline - asyncio.get_running_loop().time()) > 0:
            change = await self.next(left)
            if change is Signal.CLOSED:
                break
            if brought is not None and isinstance(change, Change):
                value = brought(value, change)
            elif brought is None or change is Signal.GAP:
                value = await read()
        return value

    def tell(self, change: Change) -> None:
        """Queue a change; beyond the limit one gap replaces all that wait."""
        if self._only is not None and not self._only(change):
            return
        if self._waiting is None:
            self._waiting = deque()
        if len(self._waiting) >= self._limit:
            self._waiting.clear()
            self._gap = True
        if not self._gap:
            self._waiting.append(change)
        self._rouse()

    def close(self) -> None:
        """End the reader's stream."""
        self._closed = True
        self._rouse()

    def _rouse(self) -> None:
        if self._wake is not None:
            _wake_up(self._wake)


def _wake_up(wake: asyncio.Future[None]) -> None:
    if not wake.done():
        wake.set_result(None)


class Changes:
    """Joins the fold and its waiters. For one event loop."""

    def __init__(self) -> None:
        self._listeners: dict[Topic, set[ChangeListener]] = {}
        self._taps: list[Callable[[Change], None]] = []
        self._count = 0
        self._closed = False

    def tap(self, heard: Callable[[Change], None]) -> None:
        """Call `heard` with every change from now on, before its waiters wake; it must be quick."""
        self._taps.append(heard)

    def publish(self, changes: Iterable[Change]) -> None:
        """Wake the waiters of `changes`. Call it after the commit."""
        listeners = self._listeners
        for change in changes:
            for heard in self._taps:
                heard(change)
            told: set[ChangeListener] = set()
            for topic in change.topics:
                if topic in listeners:
                    told |= listeners[topic]
            for listener in told:
                listener.tell(change)

    def listen(
        self,
        *topics: Topic,
        limit: int = LISTENER_LIMIT,
        only: Callable[[Change], bool] | None = None,
    ) -> ChangeListener:
        """A listener for the changes of `topics` from now on; use it in a `with` block.

        Args:
            only: whether a change wakes it; None for every change.

        Raises:
            Refused: too many listen.
        """
        if self._count >= MAX_WATCHES:
            raise Refused("too many wait for changes", remedy="try again in a moment")
        listener = ChangeListener(limit, self, only)
        if self._closed:
            listener.close()
        self._count += 1
        listener.join(topics)
        return listener

    def add(self, listener: ChangeListener, topics: Iterable[Topic]) -> None:
        """Tell a listener of further topics."""
        for topic in topics:
            self._listeners.setdefault(topic, set()).add(listener)

    def forget(self, listener: ChangeListener, topics: Iterable[Topic]) -> None:
        """End a listener."""
        self._count -= 1
        for topic in topics:
            listeners = self._listeners.get(topic, set())
            listeners.discard(listener)
            if not listeners:
                self._listeners.pop(topic, None)

    async def until(
        self,
        topic: Topic,
        read: Callable[[], Awaitable[T]],
        done: Callable[[T], bool],
        timeout: float,
        brought: Callable[[T, Change], T] | None = None,
        only: Callable[[Change], bool] | None = None,
    ) -> T:
        """Read once, and wait for changes of `topic` until `done` or until `timeout` seconds have passed: a long poll.

        Args:
            brought: the value after a change; None to read it again after each.
            only: whether a change matters; None for every change.

        Returns the last value, `done` or not.
        """
        limit = 1 if brought is None else LISTENER_LIMIT
        with self.listen(topic, limit=limit, only=only) as listener:
            return await listener.until(read, done, timeout, brought)

    @property
    def listening(self) -> int:
        """The number of listeners."""
        return self._count

    def close(self) -> None:
        """End every wait, now and later, so that a shutdown waits for no reader."""
        self._closed = True
        for listeners in self._listeners.values():
            for listener in listeners:
                listener.close()
