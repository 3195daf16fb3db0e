"""Where the state is whose tasks lie in SurrealDB: a place in SQL, and the tasks beside it.

No transaction spans both, so this is their order. What the fold makes is committed to SurrealDB first, then SQL
commits, then what was given up is deleted in SurrealDB. A crash between two of them loses nothing:

- Tasks are stored and SQL is not: the cursors of mail are behind those of tasks, so INBOX and TASKS are folded again
  from there. A record of a task that is folded twice has no second effect.
- SQL has committed and the tasks that it gave up are still there: they have ended, and the next run gives them up.

A commit whose end is not known is repeated by the fold in the same process (`surreal.unit`).
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeVar

import sqlalchemy
from sqlalchemy import delete

from postroom.disk import sync
from postroom.errors import (
    DatabaseAway,
    EnvironmentFault,
    InvalidInput,
    PostroomError,
    StateUnwritable,
    StoreLocked,
)
from postroom.settings import DEFAULT_ORG, Settings
from postroom.store.ports import Place, StoreConnection, Tasks, TaskTables
from postroom.store.schema import SET_ASIDE, a2a_task_events, a2a_tasks
from postroom.store.schema import cursors as positions
from postroom.store.session import Session
from postroom.store.surreal import schema
from postroom.store.surreal.session import Gate, SurrealSession
from postroom.store.surreal.tables import SurrealTables
from postroom.store.surreal.tasks import SurrealTasks
from postroom_a2a.surreal import Address, Away, Connection, InUse, Refuses, open_connection
from postroom_a2a.surreal.faults import check_installed

T = TypeVar("T")

TASKS_OF_SQL = "tasks"
"""Name of their cursors in SQL."""

OWNER = "tasks.owner"
"""File of the organisation that says which tasks in SurrealDB are its own: those folded from this log."""

_KINDS: dict[type[PostroomError], type[PostroomError]] = {
    Away: DatabaseAway,
    InUse: StoreLocked,
    Refuses: StateUnwritable,
}


@contextmanager
def typed_faults() -> Generator[None]:
    """Turn faults of the library's connection into those that the callers of a store know.

    Raises:
        DatabaseAway: the server does not answer, or does not let us in.
        StoreLocked: another process has the database.
        StateUnwritable: the disk is full or read-only.
    """
    try:
        yield
    except (Away, InUse, Refuses) as error:
        raise _KINDS[type(error)](error.message, remedy=error.remedy) from error


class TaskDatabase:
    """The tasks of one organisation.

    Attributes:
        writer: names this process in the database; whoever came later writes, and we are told at the next commit.
        embedded: the engine runs in this process, and all threads share it.

    Args:
        home: folder of the organisation; None for a post room in memory.
    """

    def __init__(self, address: Address, org: str, home: Path | None) -> None:
        self.address = address
        self.embedded = address.embedded
        self.gate = Gate()
        self.writer = secrets.token_hex(8)
        self._org = org
        self._home = home
        self._own: dict[int, Connection] = {}
        self._opening = threading.Lock()
        self._claimed = False

    @property
    def folder(self) -> Path | None:
        """Of the embedded engine; each organisation has one."""
        return self.address.folder / self._org if self.address.folder else None

    @property
    def database(self) -> str:
        """Its name in the namespace: that of the address is for the default organisation."""
        named = self.address.database or "postroom"
        return named if self._org == DEFAULT_ORG else f"{named}_{self._org}"

    def connection(self) -> Connection:
        """The connection of this thread; one for all where the engine is embedded."""
        key = 0 if self.embedded else threading.get_ident()
        found = self._own.get(key)
        if found is None:
            with self._opening:
                found = self._own.get(key) or self._opened()
                self._own[key] = found
        return found

    def _opened(self) -> Connection:
        return open_connection(self.address, self.database, self.folder)

    def claim(self) -> None:
        """Make the tables, and be the one who writes from now on.

        Raises:
            Conflict: they are of another post room.
            As `open_connection`.
        """
        connection = self.connection()
        schema.prepare(connection, self._owner())
        connection.run(f"UPDATE {schema.META}:state SET writer = $writer", {"writer": self.writer})

    def close(self) -> None:
        """End the connections; idempotent."""
        with self._opening:
            for one in self._own.values():
                one.close()
            self._own.clear()

    def set_aside(self, at: float) -> None:
        """Keep the tasks of the removed organisation: under another name, or as nobody's on a server."""
        if self.folder is not None:
            if self.folder.exists():
                self.folder.rename(self.folder.with_name(f"{self._org}{SET_ASIDE}{int(at)}"))
            return
        connection = self.connection()
        if schema.exists(connection):
            connection.run(f"UPDATE {schema.META}:state SET owner = $of", {"of": f"removed {at}"})

    def _owner(self) -> str:
        if self._home is None:
            return "memory"
        path = self._home / OWNER
        if not path.exists():
            new = path.with_name(f"{path.name}.new")
            new.write_text(f"{secrets.token_hex(16)}\n")
            sync(new)
            new.replace(path)
            sync(path.parent)
        return path.read_text().strip()


class TasksElsewhere(Place):
    """Implements `database.Place`: `place` with the tasks in `tasks`."""

    inline = False  # a request is no call for the event loop
    shared: bool
    forgets: bool

    def __init__(self, place: Place, tasks: TaskDatabase) -> None:
        self.place = place
        self.tasks = tasks
        self.shared = place.shared
        # A server may run without flushing what it has committed.
        self.forgets = place.forgets or not tasks.embedded
        self.parts: Mapping[str, Sequence[sqlalchemy.Table]] = place.parts

    def connect(self, *, writes: bool, timeout: float | None = None) -> StoreConnection:
        return TasksConnection(
            self.place.connect(writes=writes, timeout=timeout), self.tasks, writes=writes
        )

    def create(self, connection: sqlalchemy.Connection, part: str) -> None:
        self.place.create(connection, part)

    def close(self) -> None:
        self.place.close()
        self.tasks.close()

    @property
    def kept(self) -> Path | None:
        return self.place.kept

    def before(self) -> None:
        self.place.before()

    def after(self) -> None:
        """As `ports.Place`. Tasks that lay in SQL go: the next start folds them again, as `rebuild` does."""
        self.place.after()
        with typed_faults():
            self.tasks.claim()
        part = next(name for name, tables in self.parts.items() if a2a_tasks in tables)
        self.place.alter(part, _without_tasks)

    def alter(self, part: str, work: Callable[[sqlalchemy.Connection], T]) -> T:
        return self.place.alter(part, work)

    def set_aside(self, at: float) -> None:
        """As `postgres.place.PostgresPlace`."""
        with typed_faults():
            self.tasks.set_aside(at)
        self.place.set_aside(at)  # ty: ignore[missing-attribute] (both places in SQL have it)


def _without_tasks(connection: sqlalchemy.Connection) -> None:
    connection.execute(delete(a2a_task_events))
    connection.execute(delete(a2a_tasks))
    connection.execute(delete(positions).where(positions.c.projection == TASKS_OF_SQL))


class TasksConnection(StoreConnection):
    """Implements `database.StoreConnection`: one in SQL, and a session of the tasks."""

    def __init__(self, sql: StoreConnection, tasks: TaskDatabase, *, writes: bool) -> None:
        self._sql = sql
        self._tasks = tasks
        self._own = SurrealSession(tasks, writes=writes)
        self.session = sql.session
        self.tasks: Tasks | None = SurrealTasks(self._own)
        self.task_tables: TaskTables | None = SurrealTables(tasks)

    def run(self, work: Callable[[Session], T], *, flush: bool = True, accounts: bool = True) -> T:
        """As `StoreConnection`; see above for the order of the commits."""
        own = self._own
        with typed_faults(), ExitStack() as stack:
            stack.callback(own.end)

            def both(session: Session) -> T:
                done = work(session)
                if own.changed:
                    stack.enter_context(self._tasks.gate.alone())
                    own.commit()
                return done

            own.begin(reads=not own.writes)
            done = self._sql.run(both, flush=flush, accounts=accounts)
            own.settle()
        return done

    @contextmanager
    def viewing(self) -> Generator[None]:
        with typed_faults(), self._sql.viewing():
            self._own.begin(reads=False)
            yield

    def close(self) -> None:
        self._sql.close()


def beside(place: Place, settings: Settings) -> TasksElsewhere:
    """`place` with the tasks where the settings say.

    Raises:
        InvalidInput: the address is none, could be read on its way, or does not fit to a post room in memory.
        EnvironmentFault: the package is not installed, or the file with the password cannot be read.
    """
    check_installed()
    address = Address.parse(settings.task_store).with_password(_password(settings))
    in_memory = address.embedded and address.folder is None
    if in_memory != settings.memory:
        raise InvalidInput(
            f"tasks.store is {address.shown}, and the log is {'in memory' if settings.memory else 'on disk'}",
            remedy="both have to last equally long: surrealdb+mem:// is for a post room in memory, and for no other",
        )
    home = None if settings.memory else settings.home
    return TasksElsewhere(place, TaskDatabase(address, settings.org, home))


def _password(settings: Settings) -> str:
    if settings.task_store_password:
        return settings.task_store_password
    return (
        ""
        if settings.task_store_password_file is None
        else _read(settings.task_store_password_file)
    )


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise EnvironmentFault(
            f"cannot read {path}, which has the password of tasks.store",
            remedy="check tasks.password_file",
        ) from error
