"""Runs work on the database for asyncio code: one thread that writes, a few that read.

SQLite has one writer at a time in any case, so one thread with its own connection is the simplest and the fastest way
to write from asyncio (a pool of connections spends its time waiting for the lock). PostgreSQL gets the same: the fold
writes alone, and what people write is rare. Work gets a `Store`: the state of an organisation by noun, whichever
database holds it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from time import perf_counter
from typing import Any, Generic, Self, TypeVar

import sqlalchemy

from postroom.errors import DatabaseBusy, InvalidInput, RequestTimeout, StoreLocked
from postroom.protocol.events import event_id
from postroom.store.activity import ActivityStore
from postroom.store.agents import AgentStore, CardStore
from postroom.store.alerts import AlertStore
from postroom.store.approvals import ApprovalStore
from postroom.store.blobs import BlobStore
from postroom.store.events import EventStore
from postroom.store.grants import GrantStore
from postroom.store.invites import InviteStore
from postroom.store.keys import CredentialStore, KeyStore, OpeningStore
from postroom.store.messages import AnnouncementStore, MessageStore
from postroom.store.pending import PendingStore
from postroom.store.ports import Place, StoreConnection, Tasks, TaskTables
from postroom.store.pushes import PushStore
from postroom.store.reading import ReadingStore
from postroom.store.records import RecordStore
from postroom.store.session import Session
from postroom.store.sessions import SessionStore
from postroom.store.signing import Signer
from postroom.store.sqlite import SQLitePlace
from postroom.store.tasks import TaskStore
from postroom.store.threads import ThreadStore
from postroom.store.webhooks import WebhookStore
from postroom.store.workers import WorkerStore

__all__ = ["Database", "DatabaseStatistics", "Store"]

T = TypeVar("T")

READERS = 2
QUEUE_LIMIT = 1024
"""The most calls that wait for a thread; further ones are refused."""

CALL_TIMEOUT = 30.0
"""Seconds from the call to its result."""


CHECKPOINT = 64
"""Writes after which a fold runs in the writer's thread, where SQLite copies its WAL into the database."""


class Store:
    """One transaction or one consistent view, as the runner gives it to a piece of work (`store.database`).

    Attributes:
        agents, blobs, cards, credentials, grants, invites, keys, openings, pushes, sessions, webhooks,
            workers: identity.
        alerts, announcements, approvals, events, messages, pending, records, threads: folded from the log.
        reading: what readers have put away and read, whose origin is here.
        tasks: folded from the log, as a projection of their own; perhaps in another database.
        task_tables: all rows of that database, None where tasks lie in SQL.
        activity: what happens in a project, read from several of them.
    """

    def __init__(
        self,
        session: Session,
        tasks: Tasks | None = None,
        task_tables: TaskTables | None = None,
        signer: Signer | None = None,
    ) -> None:
        self.session = session
        self.task_tables = task_tables
        self.activity = ActivityStore(session)
        self.agents = AgentStore(session)
        self.blobs = BlobStore(session)
        self.cards = CardStore(session)
        self.credentials = CredentialStore(session)
        self.grants = GrantStore(session)
        self.invites = InviteStore(session)
        self.keys = KeyStore(session)
        self.openings = OpeningStore(session)
        self.pushes = PushStore(session)
        self.sessions = SessionStore(session)
        self.webhooks = WebhookStore(session)
        self.workers = WorkerStore(session)
        self.alerts = AlertStore(session)
        self.announcements = AnnouncementStore(session)
        self.approvals = ApprovalStore(session)
        self.events = EventStore(session)
        self.messages = MessageStore(session, signer)
        self.pending = PendingStore(session, self.messages.row)
        self.reading = ReadingStore(session)
        self.records = RecordStore(session)
        self.threads = ThreadStore(session)
        self.tasks: Tasks = tasks or TaskStore(session)
        # INBOX is in both projections: a message, and the task that it may request.
        mail, own = self.records.cursors, self.tasks.cursors
        self._cursors = {"INBOX": (mail, own), "TASKS": (own,)}
        self._mail = (mail,)

    def cursor(self, stream: str) -> int:
        """Sequence up to which every projection of `stream` has folded it, 0 before the first record."""
        return min(cursor.get(stream) for cursor in self._cursors.get(stream, self._mail))

    @property
    def last_event(self) -> int:
        """The last id that a folded event can have."""
        return event_id(self.cursor("EVENTS") + 1, 0) - 1

    def set_cursor(self, stream: str, seq: int) -> None:
        """Store the sequence up to which `stream` is folded."""
        for cursor in self._cursors.get(stream, self._mail):
            cursor.set(stream, seq)


@dataclass(frozen=True, slots=True)
class DatabaseStatistics:
    """Counters since the database was opened.

    Attributes:
        write_seconds, read_seconds: in which transactions and views ran.
        refused: calls that found too many waiting.
    """

    writes: int = 0
    reads: int = 0
    waiting: int = 0
    write_seconds: float = 0.0
    read_seconds: float = 0.0
    refused: int = 0


class Database:
    """The state of an organisation.

    Args:
        place: where it is; a path means SQLite with the projection in that file, None SQLite in memory.
        signer: of the messages in it; None signs and checks none.
    """

    def __init__(self, place: Place | Path | None = None, signer: Signer | None = None) -> None:
        self.signer = signer
        self.place = SQLitePlace(place) if place is None or isinstance(place, Path) else place
        pool = partial(_Pool, signer=signer)
        self._writer = pool(partial(self.place.connect, writes=True))
        self._write_thread = ThreadPoolExecutor(1, "store-write")
        self._readers, self._read_threads = self._writer, self._write_thread
        if not self.place.shared:
            self._readers = pool(partial(self.place.connect, writes=False))
            self._read_threads = ThreadPoolExecutor(READERS, "store-read")
        self._reading = partial(self._readers.run, accounts=False)
        self._here: _Pool | None = None
        self._folding: _Pool | None = None
        if self.place.inline:
            self._here = pool(partial(self.place.connect, writes=False, timeout=0.0))
            self._folding = pool(partial(self.place.connect, writes=True, timeout=0.0))
        self._waiting = 0
        self._refused = 0
        self._writes = 0
        self._reads = 0

    @property
    def path(self) -> Path | None:
        """File of the projection, None where it is in no file."""
        sql = getattr(self.place, "place", self.place)  # tasks may lie elsewhere
        return sql.path if isinstance(sql, SQLitePlace) else None

    async def __aenter__(self) -> Self:
        """The database itself; leaving the block closes it."""
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def write(
        self,
        work: Callable[[Store], T],
        *,
        timeout: float | None = CALL_TIMEOUT,
        accounts: bool = True,
    ) -> T:
        """Run `work` in one transaction in the writer's thread; on return all of it is on disk, after an error
        nothing.

        Args:
            accounts: it may change accounts. What takes long does not, or it would hold up other organisations.

        Raises:
            StateUnwritable: the disk is full or read-only.
            StoreLocked: another process holds the database.
            Conflict: a row breaks a unique index or a foreign key.
            DatabaseBusy: too many calls wait.
            RequestTimeout: it took longer than `timeout` seconds; perhaps it was committed.
        """
        self._writes += 1
        run = partial(self._writer.run, accounts=accounts)
        return await self._run(self._write_thread, run, work, timeout)

    async def fold(self, work: Callable[[Store], T], *, few: bool = False) -> T:
        """As `write`, for what the log folds again: a power cut may undo it, so nobody waits for the disk.

        Args:
            few: it takes less time than a change of threads; `work` may be called twice.
        """
        self._writes += 1
        # The connection here copies nothing into the database file, which waits for the disk. The thread does.
        if few and self._folding is not None and self._writes % CHECKPOINT:
            try:
                return self._folding.run(work, flush=False)
            except StoreLocked:  # the event loop never waits for a lock
                pass
        return await self._run(self._write_thread, partial(self._writer.run, flush=False), work)

    async def read(self, work: Callable[[Store], T]) -> T:
        """Run `work` on one consistent view; it cannot write.

        Raises:
            DatabaseBusy: too many calls wait.
            RequestTimeout: it took longer than `CALL_TIMEOUT`.
        """
        self._reads += 1
        return await self._run(self._read_threads, self._reading, work)

    async def point(self, work: Callable[[Store], T]) -> T:
        """As `read`, for a few rows by their key: where the database is a file, without a change of threads."""
        if self._here is None:
            return await self.read(work)
        self._reads += 1
        try:
            return self._here.run(work)
        except StoreLocked:  # the event loop never waits for a lock
            return await self._run(self._read_threads, self._reading, work)

    @contextmanager
    def aside(self) -> Generator[Store]:
        """A consistent view on a connection of its own, for as long as a thread of the caller's needs it."""
        if self.place.shared:
            raise InvalidInput("a database in memory has no second connection")
        pool = _Pool(partial(self.place.connect, writes=False), self.signer)
        with ExitStack() as stack:
            stack.callback(pool.close)
            yield stack.enter_context(pool.viewing())

    async def alter(self, part: str, work: Callable[[sqlalchemy.Connection], T]) -> T:
        """Run `work` in one transaction of a connection to `part` alone: for making and changing tables."""
        return await self._run(self._write_thread, partial(self.place.alter, part), work, None)

    async def before(self) -> None:
        """As `Place.before`."""
        await self._run(self._write_thread, _call, self.place.before, None)

    async def after(self) -> None:
        """As `Place.after`."""
        await self._run(self._write_thread, _call, self.place.after, None)

    async def close(self) -> None:
        """Finish the running calls and close the connections; idempotent."""
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._read_threads.shutdown()
        self._write_thread.shutdown()
        for pool in (self._here, self._folding, self._readers, self._writer):
            if pool is not None:
                pool.close()
        self.place.close()

    def statistics(self) -> DatabaseStatistics:
        """Counters since the database was opened."""
        writers = [pool for pool in (self._writer, self._folding) if pool is not None]
        readers = [pool for pool in (self._readers, self._here) if pool not in (None, *writers)]
        return DatabaseStatistics(
            self._writes,
            self._reads,
            self._waiting,
            sum(pool.seconds for pool in writers),
            sum(pool.seconds for pool in readers if pool is not None),
            self._refused,
        )

    async def _run(
        self,
        threads: ThreadPoolExecutor,
        run: Callable[[Callable[..., T]], T],
        work: Callable[..., T],
        timeout: float | None = CALL_TIMEOUT,
    ) -> T:
        if self._waiting >= QUEUE_LIMIT:
            self._refused += 1
            raise DatabaseBusy(
                "too many calls wait for the database", remedy="try again in a moment"
            )
        self._waiting += 1
        job = _Job(run, work)
        call = asyncio.get_running_loop().run_in_executor(threads, job.run)
        # A caller may leave; its job stays in the queue, and counts, until a thread has come to it.
        call.add_done_callback(self._done)
        try:
            # Not `wait_for`: before Python 3.12 it loses a cancellation that comes together with the result.
            async with asyncio.timeout(timeout):
                return await asyncio.shield(call)
        except TimeoutError as error:
            raise RequestTimeout("the database did not answer in time") from error
        finally:
            job.wanted = False

    def _done(self, call: asyncio.Future[Any]) -> None:
        self._waiting -= 1
        if not call.cancelled():
            call.exception()  # its caller may have left


class _Left(Exception):
    """Nobody waits for the call any more."""


class _Job(Generic[T]):
    """One call on its way to a thread, which passes it over once nobody waits for it."""

    __slots__ = ("_run", "_work", "wanted")

    def __init__(self, run: Callable[[Callable[..., T]], T], work: Callable[..., T]) -> None:
        self._run = run
        self._work = work
        self.wanted = True

    def run(self) -> T:
        if not self.wanted:
            raise _Left
        return self._run(self._work)


def _call(work: Callable[[], T]) -> T:
    return work()


class _Pool:
    """The connections of the threads of one kind: as many as work at the same time."""

    def __init__(
        self, connect: Callable[[], StoreConnection], signer: Signer | None = None
    ) -> None:
        self._connect = connect
        self._signer = signer
        self._idle: SimpleQueue[tuple[StoreConnection, Store]] = SimpleQueue()
        # Threads add to it without a lock: of two at once one may be lost, which a metric can bear.
        self.seconds = 0.0

    def run(self, work: Callable[[Store], T], *, flush: bool = True, accounts: bool = True) -> T:
        connection, store = taken = self._take()
        begun = perf_counter()
        try:
            return connection.run(lambda _: work(store), flush=flush, accounts=accounts)
        finally:
            self.seconds += perf_counter() - begun
            self._idle.put(taken)

    @contextmanager
    def viewing(self) -> Generator[Store]:
        connection, store = taken = self._take()
        self._idle.put(taken)
        with connection.viewing():
            yield store

    def _take(self) -> tuple[StoreConnection, Store]:
        try:
            return self._idle.get_nowait()
        except Empty:
            connection = self._connect()
            tasks = connection.tasks, connection.task_tables
            store = Store(connection.session, *tasks, self._signer)
            return connection, store

    def close(self) -> None:
        while not self._idle.empty():
            self._idle.get()[0].close()
