"""What SurrealDB reports, as errors of ours."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from postroom.errors import DatabaseAway, PostroomError, StateUnwritable, StoreLocked
from postroom_a2a.surreal import Away, InUse, Refuses

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
