"""One connection of an organisation to its database in PostgreSQL: its address, and what it reports, as errors of ours.

Who writes holds an advisory lock for as long as it is connected, so two post rooms never write one organisation. What
is lost is opened anew by the next call: PostgreSQL may be restarted while we run. The text of a statement or a value
never gets into an error. Of an address it is said here what may be shown of it, and what is refused.
"""

from __future__ import annotations

import hashlib
import ipaddress
import re
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import psycopg
import sqlalchemy
from psycopg import Error, pq
from psycopg.types.numeric import Int8Dumper
from sqlalchemy import Table, create_engine
from sqlalchemy.dialects import postgresql as compiling
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import StaticPool
from sqlalchemy.sql import ClauseElement

from postroom.errors import (
    Conflict,
    DatabaseAway,
    DatabaseRefuses,
    EnvironmentFault,
    InvalidInput,
    PostroomError,
    RequestTimeout,
    StateUnwritable,
    StoreLocked,
)
from postroom.store.ports import StoreConnection
from postroom.store.postgres.tables import enter, quoted, schema_of
from postroom.store.session import Dialect, Driver, Session

T = TypeVar("T")

CONNECT_TIMEOUT = 5
"""Seconds until the server has taken the connection."""

STATEMENT_TIMEOUT = 25.0
"""Seconds after which PostgreSQL ends a statement: a little before its caller gives up."""

DEAD_AFTER = 15
"""Seconds of silence after which either side takes the other's machine for dead, and the server frees the lock."""

LOCK_WAIT = 3.0
"""Seconds for which a post room that has just ended may still hold the lock."""

# Where it is off by default for a server or a user, a commit would be answered before it is on disk.
_FLUSHED = """SELECT set_config('synchronous_commit', 'on', false)
WHERE current_setting('synchronous_commit') = 'off'"""

_VIEW = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_UNHURRIED = "SET LOCAL statement_timeout TO 0"

_PREPARE_AFTER = 2
_PREPARED = 512
"""Runs of a statement before PostgreSQL keeps it parsed, and how many it keeps for a connection."""

SCHEMES = ("postgresql://", "postgres://")

_ENCRYPTED = ("require", "verify-ca", "verify-full")

# Classes and codes of SQLSTATE: PostgreSQL, appendix A.
_AWAY = ("08", "57P", "53300", "53400")  # connection, shutdown, too many connections
_REFUSED = ("28", "3D")  # authorization, no such database
_SPACE = {"53100": "its disk is full", "53200": "it is out of memory"}
_READ_ONLY = "25006"
_LOCKED = ("40001", "40P01", "55P03")
_TIMEOUT = "57014"
_RULES = "23"  # a unique index, a foreign key
_NOT_NULL = "23502"
_PRIVILEGE = "42501"
# A connection that is refused has no code, and words in English or another language.
_MISTAKEN = re.compile(r"FATAL: .*(authentication failed|does not exist|no pg_hba\.conf entry)")
_DAMAGED = ("58", "XX001", "XX002")


@dataclass(frozen=True, slots=True)
class Address:
    """Where the database is.

    Attributes:
        url: with the password, for libpq alone.
        shown: without user, password and parameters, for people and logs.
    """

    url: str = field(repr=False)
    shown: str

    @classmethod
    def parse(cls, url: str) -> Address:
        """The address in `url`, read as libpq reads it, with its environment (`PGHOST` and the like).

        Raises:
            InvalidInput: it is no address of a PostgreSQL, or somebody on the way could read what is said.
        """
        said = _parameters(url)
        hosts = [*said.get("host", "").split(","), *said.get("hostaddr", "").split(",")]
        place = ",".join(host for host in hosts if host) or "localhost"
        port = said.get("port", "5432")
        address = cls(url, f"postgresql://{place}:{port}/{said.get('dbname', '')}")
        # A service is a file that libpq reads later.
        outside = "service" in said or not all(map(_is_here, hosts))
        if outside and said.get("sslmode") not in _ENCRYPTED:
            raise InvalidInput(
                f"the connection to {address.shown} could be read on its way",
                remedy="add ?sslmode=verify-full (and sslrootcert=FILE for a private authority)",
            )
        return address


def _parameters(url: str) -> dict[str, str]:
    try:
        if not url.startswith(SCHEMES):
            raise ValueError
        options = [*pq.Conninfo.get_defaults(), *pq.Conninfo.parse(url.encode())]
        found = {one.keyword.decode(): one.val.decode() for one in options if one.val}
        port, shown = found.get("port", ""), found.get("host", "") + found.get("dbname", "")
        if "@" in shown or not (port.replace(",", "") or "0").isdecimal():
            raise ValueError  # a sign in the password ended it early, and its rest would be shown
    except (Error, ValueError):
        # Without the text: it may hold a password.
        raise InvalidInput(
            "database.url is not the address of a PostgreSQL",
            remedy="postgresql://USER:PASSWORD@HOST/NAME; write @ : / ? # % in a password as %40 %3A %2F %3F %23 %25",
        ) from None
    return found


def _is_here(host: str) -> bool:
    """Whether `host` (a name, an address, the folder of a socket, or "") is on this machine."""
    if not host or host.startswith(("/", "@")) or host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def fault_of(error: psycopg.Error, shown: str) -> PostroomError | None:
    """The fault behind `error`, or None if the error is a bug.

    Args:
        shown: address of the database without its password.
    """
    state = error.sqlstate or ""
    if state.startswith(_RULES) and state != _NOT_NULL:
        return Conflict(f"the database refuses the row: {_said(error)}")
    if state == _TIMEOUT:
        return RequestTimeout("the database did not answer in time")
    if state in _SPACE:
        return StateUnwritable(
            f"PostgreSQL refuses to write, {_SPACE[state]}: nothing was changed",
            remedy=f"make room for {shown}",
        )
    if state == _READ_ONLY:
        return StateUnwritable(
            "PostgreSQL is read-only: nothing was changed", remedy=f"name the primary, not {shown}"
        )
    if state in _LOCKED:
        return StoreLocked("somebody else holds a lock in the database")
    if state == _PRIVILEGE:
        return EnvironmentFault(
            f"{shown} does not let this user do it: {_said(error)}",
            remedy="GRANT CREATE ON DATABASE to the user in database.url",
        )
    if state.startswith(_REFUSED) or (not state and _MISTAKEN.search(str(error))):
        return DatabaseRefuses(
            f"{shown} refuses: {_said(error)}",
            remedy="check user, password and name in database.url",
        )
    if state.startswith(_DAMAGED):
        return EnvironmentFault(f"PostgreSQL reports a damage: {_said(error)}")
    if state.startswith(_AWAY) or _is_broken(error):
        return DatabaseAway(
            f"the database at {shown} does not answer: {_said(error)}",
            remedy="start PostgreSQL, or check database.url",
        )
    return None


def is_away(error: BaseException) -> bool:
    """Whether the connection is of no use any more."""
    if isinstance(error, DBAPIError):
        error = error.orig or error
    return isinstance(error, psycopg.Error) and (
        (error.sqlstate or "").startswith(_AWAY) or _is_broken(error)
    )


def _is_broken(error: psycopg.Error) -> bool:
    # Without a code nobody at the other end has said anything: refused, lost, or closed by us.
    return error.sqlstate is None and isinstance(
        error, psycopg.OperationalError | psycopg.InterfaceError
    )


def _said(error: psycopg.Error) -> str:
    """The first line of what PostgreSQL says, without the statement."""
    primary = error.diag.message_primary
    lines = (primary or str(error)).strip().splitlines()
    return lines[0] if lines else type(error).__name__


@contextmanager
def typed_faults(shown: str) -> Generator[None]:
    """Turn what PostgreSQL reports into our errors, and what only a bug can cause into a RuntimeError."""
    try:
        yield
    except (psycopg.Error, DBAPIError) as raised:
        error = raised.orig if isinstance(raised, DBAPIError) else raised
        if not isinstance(error, psycopg.Error):
            raise
        fault: Exception | None = fault_of(error, shown)
        if fault is None:  # a bug; PostgreSQL's own text would show the whole row in the log
            fault = RuntimeError(f"PostgreSQL refuses ({error.sqlstate}): {_said(error)}")
        raise fault.with_traceback(error.__traceback__) from None


class PostgresDialect(Dialect):
    """Implements `session.Dialect`."""

    name = "postgresql"
    bools = True

    def __init__(self) -> None:
        self.compiler = PGDialect_psycopg(paramstyle="numeric_dollar")

    def insert(self, table: Table) -> Any:
        return compiling.insert(table)

    def listed(self, values: list[Any]) -> list[Any]:
        return values

    def completed(self, statement: ClauseElement, sql: str) -> str:
        """As `session.Dialect`: the views take changes."""
        del statement
        return sql


DIALECT = PostgresDialect()


class PostgresConnection(StoreConnection):
    """Implements `database.StoreConnection`; it connects at its first use.

    Args:
        writes: it may write, and holds the lock of the organisation.
    """

    tasks = task_tables = None

    def __init__(self, address: Address, org: str, *, writes: bool) -> None:
        self._address = address
        self._org = org
        self._writes = writes
        self._driver: psycopg.Connection | None = None
        self.session = Session(DIALECT, cast("Driver", _Closed()))

    def run(self, work: Callable[[Session], T], *, flush: bool = True, accounts: bool = True) -> T:
        """As `StoreConnection`; a row is what others wait for here.

        Raises:
            DatabaseAway: nothing was changed; or, where the connection broke at the end, perhaps it was.
        """
        del accounts
        with typed_faults(self._address.shown):
            driver = self._begun(self._beginning(flush=flush))
            try:
                done = work(self.session)
                driver.execute("COMMIT")
            except BaseException as error:
                self._give_up(driver, error)
                raise
            return done

    @contextmanager
    def viewing(self) -> Generator[None]:
        """As `StoreConnection`; a statement may take as long as it wants."""
        with typed_faults(self._address.shown):
            driver = self._begun(f"{_VIEW}; {_UNHURRIED}")
            try:
                yield
            finally:
                self._roll_back(driver)

    def alter(self, schema: str, work: Callable[[sqlalchemy.Connection], T]) -> T:
        """Run `work` on the tables of `schema`, in one transaction of SQLAlchemy's own connection."""
        with typed_faults(self._address.shown):
            driver = self._begun("BEGIN")
            engine = create_engine(
                "postgresql+psycopg://",
                creator=lambda: driver,
                poolclass=StaticPool,
                pool_reset_on_return=None,
            )
            try:
                with engine.connect() as connection:
                    # What SQLAlchemy asks of a new connection ends with a rollback.
                    driver.execute("BEGIN")
                    connection.exec_driver_sql(_UNHURRIED)
                    enter(connection, schema)
                    done = work(connection)
                    driver.execute("COMMIT")
            except BaseException as error:
                self._give_up(driver, error)
                raise
            return done

    def close(self) -> None:
        if self._driver is not None:
            self._driver.close()
            self._driver = None

    def _beginning(self, *, flush: bool) -> str:
        if not self._writes:
            return _VIEW
        return "BEGIN" if flush else "BEGIN; SET LOCAL synchronous_commit TO off"

    def _begun(self, beginning: str) -> psycopg.Connection:
        """The connection, with an open transaction."""
        if self._driver is not None:
            try:
                self._driver.execute(beginning.encode())
            except psycopg.Error as error:
                if not is_away(error):
                    raise
                self.close()  # the server was restarted since; nothing has happened in this transaction yet
            else:
                return self._driver
        self._driver = driver = self._connected()
        self.session.driver = cast("Driver", psycopg.RawCursor(driver))
        driver.execute(beginning.encode())
        return driver

    def _give_up(self, driver: psycopg.Connection, error: BaseException) -> None:
        if is_away(error):
            self.close()
        else:
            self._roll_back(driver)

    def _roll_back(self, driver: psycopg.Connection) -> None:
        try:
            driver.execute("ROLLBACK")
        except psycopg.Error:  # the connection is lost, and the transaction with it
            self.close()

    def _connected(self) -> psycopg.Connection:
        driver = psycopg.connect(
            self._address.url,
            autocommit=True,
            prepare_threshold=_PREPARE_AFTER,
            connect_timeout=CONNECT_TIMEOUT,
            application_name=f"postroom {self._org}",
            keepalives_idle=DEAD_AFTER // 3,
            keepalives_interval=DEAD_AFTER // 3,
            keepalives_count=2,
            tcp_user_timeout=DEAD_AFTER * 1000,
        )
        try:
            driver.prepared_max = _PREPARED
            # One type for all numbers, or each size would be another prepared statement.
            driver.adapters.register_dumper(int, Int8Dumper)
            driver.execute(self._setup().encode())
            if self._writes:
                _lock(driver, self._org)
        except BaseException:
            driver.close()
            raise
        return driver

    def _setup(self) -> str:
        keepalive = DEAD_AFTER // 3
        return "; ".join(
            (
                f"SET search_path TO {quoted(schema_of(self._org))}",
                f"SET statement_timeout TO {int(STATEMENT_TIMEOUT * 1000)}",
                f"SET lock_timeout TO {int(STATEMENT_TIMEOUT * 1000)}",
                _FLUSHED,
                "SET client_encoding TO 'UTF8'",
                # One plan for all values would not know how short a page is, and read all that it could come from.
                "SET plan_cache_mode TO force_custom_plan",
                f"SET tcp_keepalives_idle TO {keepalive}",
                f"SET tcp_keepalives_interval TO {keepalive}",
                "SET tcp_keepalives_count TO 2",
            )
        )


class _Closed:
    """Stands for the connection until a transaction opens it."""

    def execute(self, *_: object) -> Any:
        raise AssertionError("a statement outside a transaction")


def _lock(driver: psycopg.Connection, org: str) -> None:
    """Take the lock of the organisation, which the server frees when the connection ends.

    Raises:
        StoreLocked: another post room has it.
    """
    # 63 bits of a hash: PostgreSQL knows locks by number.
    number = int.from_bytes(hashlib.sha256(f"postroom/{org}".encode()).digest()[:8]) >> 1
    deadline = time.monotonic() + LOCK_WAIT
    while True:
        (taken,) = driver.execute("SELECT pg_try_advisory_lock(%s)", (number,)).fetchone() or (0,)
        if taken:
            return
        if time.monotonic() > deadline:
            raise StoreLocked(
                f"another post room has the organisation {org!r} of this database open",
                remedy="stop it, or give each post room a database of its own",
            )
        time.sleep(0.05)
