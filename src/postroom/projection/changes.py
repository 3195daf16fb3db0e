"""Wakes those who wait in this process for something that the fold commits.

Nobody polls: a waiter reads SQL, sleeps until one of its topics has changed, and reads again. A change says only that
something changed; SQL says what.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from postroom.errors import Refused

T = TypeVar("T")

Topic = tuple[str, ...]

FOLD_WAIT = 2.0
"""Seconds that a call waits for a record of its own to be folded, so that its answer shows it."""

MAX_WATCHES = 10_000
"""The most waiters at once; further ones are refused."""

LISTENER_LIMIT = 256
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


def of_task(task: str) -> Topic:
    """Everything about the task with that id."""
    return ("task", task)


ALERTS: Topic = ("alerts",)
DEADLETTERS: Topic = ("deadletters",)
MAIL: Topic = ("mail",)
"""New messages to anyone."""
TASKS: Topic = ("tasks",)
"""New tasks, and every change of one."""
POSTS: Topic = ("posts",)
"""Posts of all projects."""
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
        kind: `mail` (new message), `receipt` (new state), `post`, `alert`, `deadletter`, `task`, `worker` or
            `bus`; the last two do not come from the log.
        seq: sequence of the record: in INBOX, FEED, ALERTS, DEADLETTER or TASKS (0 for a new task).
        id: of the message, the post or the task.
        sender: of the message or the post; the requester of the task.
        recipient: of the message; the worker of the task.
        state: of the message or the task, else "".
    """

    kind: str
    seq: int
    id: str = ""
    sender: str = ""
    recipient: str = ""
    project: str = ""
    state: str = ""

    @property
    def topics(self) -> tuple[Topic, ...]:
        """The topics whose waiters this change wakes."""
        if self.kind == "post":
            return (POSTS, of_project(self.project), of_message(self.id))
        if (alone := _ALONE.get(self.kind)) is not None:
            return (alone,)
        agents = {of_agent(self.sender), of_agent(self.recipient)}
        if self.kind == "task":
            return (TASKS, of_task(self.id), *sorted(agents))
        topics = (of_message(self.id), of_chat(self.sender, self.recipient), *sorted(agents))
        return (MAIL, *topics) if self.kind == "mail" else topics


class Signal(Enum):
    """An answer to a listener that is not a change."""

    GAP = "gap"
    """Changes were dropped: read SQL again past the last sequence you have."""
    QUIET = "quiet"
    """Nothing happened within the timeout."""
    CLOSED = "closed"
    """There will be no more."""


class ChangeListener:
    """A bounded queue of changes for one slow reader (an event stream of the API)."""

    def __init__(self, limit: int = LISTENER_LIMIT) -> None:
        self._limit = limit
        self._waiting: deque[Change] = deque()
        self._gap = False
        self._closed = False
        self._wake = asyncio.Event()

    async def next(self, timeout: float) -> Change | Signal:
        """The next change, or a signal."""
        if not (self._waiting or self._gap or self._closed):
            self._wake.clear()
            try:
                # Not `wait_for`: before Python 3.12 it loses a cancellation that comes with the result.
                async with asyncio.timeout(timeout):
                    await self._wake.wait()
            except TimeoutError:
                return Signal.QUIET
        if self._gap:
            self._gap = False
            return Signal.GAP
        return self._waiting.popleft() if self._waiting else Signal.CLOSED

    def tell(self, change: Change) -> None:
        """Queue a change; beyond the limit one gap replaces all that wait."""
        if len(self._waiting) >= self._limit:
            self._waiting.clear()
            self._gap = True
        if not self._gap:
            self._waiting.append(change)
        self._wake.set()

    def close(self) -> None:
        """End the reader's stream."""
        self._closed = True
        self._wake.set()


class Changes:
    """Joins the fold and its waiters. For one event loop."""

    def __init__(self) -> None:
        self._listeners: dict[Topic, set[ChangeListener]] = {}
        self._count = 0
        self._closed = False

    def publish(self, changes: Iterable[Change]) -> None:
        """Wake the waiters of `changes`. Call it after the commit."""
        for change in changes:
            told: set[ChangeListener] = set()
            for topic in change.topics:
                told |= self._listeners.get(topic, set())
            for listener in told:
                listener.tell(change)

    @contextmanager
    def listen(
        self, *topics: Topic, limit: int = LISTENER_LIMIT
    ) -> Generator[ChangeListener, None, None]:
        """A listener for the changes of `topics` from now on.

        Raises:
            Refused: too many listen.
        """
        if self._count >= MAX_WATCHES:
            raise Refused("too many wait for changes", remedy="try again in a moment")
        listener = ChangeListener(limit)
        if self._closed:
            listener.close()
        self._count += 1
        for topic in topics:
            self._listeners.setdefault(topic, set()).add(listener)
        try:
            yield listener
        finally:
            self._count -= 1
            for topic in topics:
                self._forget(topic, listener)

    def _forget(self, topic: Topic, listener: ChangeListener) -> None:
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
    ) -> T:
        """Read now and after each change of `topic`, until `done` or until `timeout` seconds have passed.

        Returns the last value read, `done` or not.
        """
        deadline = asyncio.get_running_loop().time() + timeout
        with self.listen(topic, limit=1) as listener:
            while True:
                value = await read()
                left = deadline - asyncio.get_running_loop().time()
                if done(value) or left <= 0:
                    return value
                if await listener.next(left) is Signal.CLOSED:
                    return value

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
