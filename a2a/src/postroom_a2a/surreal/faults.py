"""What can go wrong with a SurrealDB, as errors of ours: no text of a statement or a value gets into one.

The package `surrealdb` is an extra; that it is missing is one of them.
"""

from __future__ import annotations

import importlib.util

from postroom_a2a.errors import EnvironmentFault


class NotInstalled(EnvironmentFault):
    """The package `surrealdb` is not installed."""


class InUse(EnvironmentFault):
    """Another process has the folder open, or writes to the database."""


class Away(EnvironmentFault):
    """The server does not answer, or does not let us in; whether it did what was asked is not known."""


class Refuses(EnvironmentFault):
    """The database cannot be written: the disk is full, or nobody may write to it."""


class Failed(EnvironmentFault):
    """The database reports what we did not foresee."""


class Thrown(Exception):
    """A statement of ours has thrown; nothing of the transaction was kept. The text is what it threw."""


SPACE = (
    "no space left",
    "disk full",
    "quota exceeded",
    "read-only file system",
    "permission denied",
)
AGAIN = ("conflict", "can be retried", "failed transaction due to")
"""In what the engine says where two transactions met: the same one may pass a moment later."""

_THROWN = "An error occurred: "
NOT_RUN = "The query was not executed"
"""What every other statement of a failed transaction reports."""


def fault(text: str) -> Exception:
    """The fault behind what the engine or a server says."""
    if text.startswith(_THROWN):
        return Thrown(text.removeprefix(_THROWN))
    low = text.lower()
    if any(sign in low for sign in SPACE):
        return Refuses(
            "SurrealDB refuses to write: nothing was changed",
            remedy="make room, or check the folder's owner",
        )
    return Failed(f"SurrealDB reports: {first_line(text)}")


def first_line(text: str) -> str:
    """What it says without the statement, which follows on further lines."""
    lines = text.strip().splitlines()
    return lines[0][:200] if lines else "nothing"


def check_installed() -> None:
    """Look whether the package is there.

    Raises:
        NotInstalled: it is not.
    """
    if importlib.util.find_spec("surrealdb") is None:
        raise NotInstalled(
            "tasks in SurrealDB need a package that is not installed: surrealdb",
            remedy="pip install 'postroom[surrealdb]'",
        )
