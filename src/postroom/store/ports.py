"""The ports of the store: of tasks, with the rows in which it speaks, and of the place where a database is.

Tasks are the part of the state that a third store may hold, beside SQLite and PostgreSQL. So they have cursors of their
own, and no query joins them with anything else (`store.tasks` is the port in SQL).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from postroom_a2a.task_state import TaskState

if TYPE_CHECKING:
    import sqlalchemy

    from postroom.store.session import Session

T = TypeVar("T")

TOLD = "TASKS told"
"""Name of the cursor up to which requesters were told of the records of TASKS; no fold sets it."""


@dataclass(frozen=True, slots=True)
class TaskHead:
    """A task without its snapshot, which may be large; lists show it.

    Attributes:
        id: `protocol.tasks.task_id` of worker, requester and request.
        worker, requester: uids.
        request: id of the message that asked.
        requested_seq: sequence of that message in INBOX.
        skill: id of the wanted skill, "" for any.
        stream: the requester wants to hear of every change.
        text: of the request, in lists its first `MAX_SHOWN_TEXT` characters.
        seq: sequence in TASKS of the last record that counted, 0 before the first.
        attempt, lost, runner, released: as in that record (`tasks.records.TaskRecord`).
        said: the beginning of the text with the present state.
        snapshot_seq: sequence in TASKS of the last record with a snapshot, 0 for the request.
        weight, since: as `tasks.records.Weight` has them.
        final: no further state follows.
        created_at: when the request was stored.
        updated_at: when the last record that counted was stored.
        door: `protocol.tasks.Door` of its request; "" where an earlier version noted none.
        retry_of: id of the task that it asks for again, "" for none.
    """

    id: str
    worker: str
    requester: str
    request: str
    requested_seq: int
    context_id: str
    text: str
    created_at: float
    updated_at: float
    skill: str = ""
    stream: bool = False
    state: str = TaskState.SUBMITTED.value
    seq: int = 0
    attempt: int = 0
    lost: int = 0
    runner: str = ""
    released: bool = False
    said: str = ""
    snapshot_seq: int = 0
    weight: int = 0
    since: int = 0
    final: bool = False
    door: str = ""
    retry_of: str = ""


@dataclass(frozen=True, slots=True)
class TaskRow(TaskHead):
    """A task with all that was said.

    Attributes:
        snapshot: the A2A Task as it is, as JSON text; in a change without a snapshot "".
    """

    snapshot: str = ""


@dataclass(frozen=True, slots=True)
class TaskEventRow:
    """A record of TASKS that counted.

    Attributes:
        worker: uid.
        event: A2A StreamResponse, as JSON text; "" for the first record, which is the task itself.
        answer: the A2A Message that the event brings into the history, as JSON text; "" for none, and where a snapshot
            has it.
    """

    seq: int
    task: str
    worker: str
    state: str
    attempt: int
    runner: str
    at: float
    event: str
    answer: str = ""


MAX_RETRIES = 20
"""Retries of one task that are read."""


@dataclass(frozen=True, slots=True)
class Ended:
    """Something that has ended (`store.pruning`).

    Attributes:
        key: what a page goes on from.
        id: of the message or the task.
        parties: whose project it may belong to, the first that has one.
        project: itself, where it says one.
        began_at: grows with `key`.
        size: bytes of its texts.
        reply_to: id of the message that it answers.
        number: rows; more than one only for events.
    """

    key: int
    id: str
    parties: tuple[str, ...]
    began_at: float
    ended_at: float
    size: int
    project: str = ""
    reply_to: str = ""
    number: int = 1


class Cursor(Protocol):
    """How far a projection has folded each stream: the sequence of the last record, 0 before the first."""

    def get(self, stream: str) -> int:
        """Sequence of the last folded record of `stream`."""

    def set(self, stream: str, seq: int) -> None:
        """Store the sequence up to which `stream` is folded."""


class Tasks(Protocol):
    """Tasks and their changes: a projection of its own, with its own cursors. No query of it joins another table.

    Attributes:
        cursors: how far INBOX and TASKS are folded.
    """

    cursors: Cursor

    def insert_task(self, row: TaskRow) -> bool:
        """Store a new task; False without effect if one has that id or request."""

    def record_change(self, row: TaskRow, change: TaskEventRow) -> None:
        """Store a change of a task, and the task after it; requester, worker and request stay.

        Args:
            row: its snapshot takes the place of the one before; "" if the change has none.
        """

    def drop_snapshot(self, seq: int) -> None:
        """Forget the snapshot of the change at `seq`: a later one has the next."""

    def head_by_id(self, task: str) -> TaskHead | None:
        """The task with that id, without its snapshot, and with the beginning of its text."""

    def task_by_id(self, task: str) -> TaskRow | None:
        """The task with that id."""

    def tasks_by_ids(self, ids: Collection[str]) -> list[TaskRow]:
        """The tasks with those ids, in no order."""

    def tasks_by_prefix(self, prefix: str, limit: int = 2, party: str = "") -> list[TaskHead]:
        """The first tasks whose id has that hexadecimal prefix; `party` as in `list_tasks`."""

    def events_of(self, task: str, after: int = 0, limit: int = 100) -> list[TaskEventRow]:
        """Changes of a task past sequence `after`, in their order."""

    def events_at(self, seqs: Collection[int]) -> list[TaskEventRow]:
        """The changes in those records of TASKS, in their order."""

    def list_tasks(
        self,
        *,
        worker: str = "",
        requester: str = "",
        states: Collection[str] = (),
        open_only: bool | None = None,
        limit: int,
        before: int = 0,
        party: str = "",
        door: str = "",
    ) -> list[TaskHead]:
        """Tasks, the newest request first.

        Args:
            party: uid of their worker or their requester; "" for any.
            worker, requester: uids; "" for any.
            states: only tasks in one of them; empty for any.
            open_only: only open (True) or final tasks (False).
            before: only tasks requested before this sequence of INBOX (`requested_seq`).
            door: only tasks that were asked for over it; "" for any.
        """

    def retries_of(self, task: str) -> list[TaskHead]:
        """The tasks that ask for that one again, the oldest request first; at most `MAX_RETRIES`."""

    def updated(
        self,
        *,
        worker: str = "",
        requester: str = "",
        context: str = "",
        state: str = "",
        since: float = 0.0,
        past: tuple[float, str] | None = None,
        limit: int,
    ) -> tuple[list[tuple[float, str]], int]:
        """The places of tasks, those that changed last first: (instant of the last change, id); and their number.

        Args:
            worker, requester, context, state: "" for any.
            since: only tasks that changed then or later.
            past: only tasks behind that place; they count for the number all the same.
        """

    def open_tasks(
        self, worker: str, after: int = 0, limit: int = 500, *, taken: bool = True
    ) -> list[TaskHead]:
        """A worker's open tasks past INBOX `after`, in the order of their requests: those that it has taken or, without
        `taken`, those that it has not.
        """

    def queue(self, worker: str, limit: int = 500) -> list[tuple[int, str]]:
        """The tasks that a worker has taken and not ended: (`requested_seq`, state), in the order of the requests."""

    def counts(self) -> dict[str, int]:
        """The number of open tasks of each worker that has any, untaken ones too."""

    def states(self) -> dict[str, int]:
        """The number of open tasks in each state that has any."""

    def current(self) -> dict[str, TaskHead]:
        """The current task of each worker: the one that runs, else the oldest that waits for an answer."""

    def interrupted(self) -> list[TaskHead]:
        """At most `MAX_PAGE` tasks that wait for an answer (`MAX_ASKING` of one worker), the oldest request first."""

    def silent(self, workers: Collection[str], before: float) -> list[TaskHead]:
        """Open tasks of those workers that wait for no answer and have not changed since the instant `before`, a
        bounded number of them.
        """

    def untaken_tasks(self, after: int = 0) -> list[TaskRow]:
        """Open tasks that no worker has taken, whose requests are past sequence `after` of INBOX, in their order."""

    def open_of(self, worker: str, after: int = 0) -> list[TaskRow]:
        """Open tasks that `worker` has taken, whose requests are past sequence `after` of INBOX."""

    def begun(self, tasks: Collection[str]) -> dict[str, float]:
        """The instant of each task's first attempt; a task without one is left out."""

    def heads_by_ids(self, ids: Collection[str]) -> list[TaskHead]:
        """The tasks with those ids, without their snapshots, in no order."""

    def heads_by_requests(self, seqs: Collection[int]) -> list[TaskHead]:
        """The tasks requested at those sequences of INBOX, without their snapshots, in no order."""

    def events_past(self, after: int, limit: int) -> list[TaskEventRow]:
        """The first changes of all tasks past sequence `after`, in their order."""

    def requested_past(self, after: int, limit: int) -> list[TaskHead]:
        """The first tasks requested past sequence `after` of INBOX, in that order."""

    def milestones(
        self, workers: Collection[str], after: int | None, limit: int, before: int
    ) -> list[TaskEventRow]:
        """Of the tasks of those workers: that one was taken, asks, or has ended. In their order.

        Args:
            after: the first ones past that sequence; None for the newest of those before the sequence `before`.
        """

    def ended(self, after: int, limit: int, *, sized: bool = True) -> list[Ended]:
        """The first tasks requested past sequence `after` of INBOX that have ended; with the bytes of all their rows,
        or with 0.
        """

    def progress(self, ids: Collection[str]) -> dict[str, tuple[int, int]]:
        """For each of those tasks the number and the bytes of its changes that are not the first in their state."""

    def sizes(self) -> dict[str, tuple[int, int]]:
        """For each worker the bytes of its tasks, and those of their changes, as they are stored."""

    def forget(self, ids: Collection[str]) -> None:
        """Delete those tasks with their changes."""

    def forget_progress(self, ids: Collection[str]) -> None:
        """Delete the changes of those tasks that `progress` counts."""


class TaskTables(Protocol):
    """All rows of tasks at once, where they lie in no table of SQL.

    Attributes:
        names: of the tables that they stand for.
    """

    names: frozenset[str]

    def cursors(self) -> dict[str, int]:
        """Stream to the sequence up to which it is folded; a snapshot asks for them before it reads rows."""

    def rows(self, table: str, columns: Sequence[str]) -> Iterator[Sequence[Any]]:
        """All rows of a table in the order of its key, each in the order of `columns`."""

    def clear(self) -> None:
        """Delete all rows and cursors, at once."""

    def load(self, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Insert rows, at once."""

    def set_cursors(self, cursors: Mapping[str, int]) -> None:
        """Store cursors, at once."""


class StoreConnection(Protocol):
    """A connection to either database; one thread at a time uses it.

    Attributes:
        tasks, task_tables: where they lie in another database; None in this one.
    """

    session: Session
    tasks: Tasks | None
    task_tables: TaskTables | None

    def run(self, work: Callable[[Session], T], *, flush: bool = True, accounts: bool = True) -> T:
        """Run `work` in one transaction.

        Args:
            flush: without it a power cut may undo what it did.
            accounts: it may change accounts, which others share; what is not flushed never does.

        Raises:
            StateUnwritable, StoreLocked, EnvironmentFault: the database cannot do it now.
            Conflict: a row breaks a unique index or a foreign key.
        """

    def viewing(self) -> AbstractContextManager[None]:
        """One consistent view until the block ends."""

    def close(self) -> None:
        """End the connection."""


class Place(Protocol):
    """Where a database is.

    Attributes:
        shared: all connections are one, so reads take turns with writes.
        inline: a call takes less time than a change of threads, so the event loop may make it itself.
        forgets: it may crash while we live, and undo what `fold` has committed last.
        parts: each with its tables: what has a version of its own, in the order in which they are made.
        kept: where a copy lies of what the last migration has changed, None for none.
    """

    shared: bool
    inline: bool
    forgets: bool
    parts: Mapping[str, Sequence[sqlalchemy.Table]]

    @property
    def kept(self) -> Path | None:
        """See `Place`."""

    def connect(self, *, writes: bool, timeout: float | None = None) -> StoreConnection:
        """A new connection; `timeout` is how many seconds it waits for another process's lock."""

    def create(self, connection: sqlalchemy.Connection, part: str) -> None:
        """Make the tables of an empty part."""

    def close(self) -> None:
        """End the connections that the place keeps for itself."""

    def before(self) -> None:
        """Make ready for tables, and refuse files that are older than migrations."""

    def after(self) -> None:
        """Note the organisation, when every part has its tables."""

    def alter(self, part: str, work: Callable[[sqlalchemy.Connection], T]) -> T:
        """Run `work` in one transaction of a connection to `part` alone: for making and changing tables."""
