"""From what a selection finds to frozen rows, by column name.

Making a statement takes several times as long as running it. So what the fold asks for each record is a constant,
made once, with `bindparam` where a value goes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import Connection, Select

T = TypeVar("T")


def all_of(
    connection: Connection, kind: Callable[..., T], found: Select, **values: object
) -> list[T]:
    """Everything that `found` finds with `values`, each as a `kind`, whose fields are named like the columns."""
    return [kind(**row) for row in connection.execute(found, values).mappings()]


def first_of(
    connection: Connection, kind: Callable[..., T], found: Select, **values: object
) -> T | None:
    """The first that `found` finds with `values` as a `kind`, or None."""
    row = connection.execute(found, values).mappings().first()
    return None if row is None else kind(**row)
