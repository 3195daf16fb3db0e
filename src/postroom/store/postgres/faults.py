"""What PostgreSQL reports, as an error of ours; the text of a statement or a value never gets into one."""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager

import psycopg
from sqlalchemy.exc import DBAPIError

from postroom.errors import (
    Conflict,
    DatabaseAway,
    DatabaseRefuses,
    EnvironmentFault,
    PostroomError,
    RequestTimeout,
    StateUnwritable,
    StoreLocked,
)

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
