"""Turns the result of a selection into frozen rows, by column name.

Building a statement takes several times as long as running it. So each statement of the fold is a constant, with
`bindparam` where a value goes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import Connection, Select

T = TypeVar("T")


def all_of(
    connection: Connection, kind: Callable[..., T], found: Select, **values: object
) -> list[T]:
    """All results of `found` with `values`, each as a `kind` with fields named like the columns."""
    return [kind(**row) for row in connection.execute(found, values).mappings()]


def first_of(
    connection: Connection, kind: Callable[..., T], found: Select, **values: object
) -> T | None:
    """The first result of `found` with `values` as a `kind`, or None."""
    row = connection.execute(found, values).mappings().first()
    return None if row is None else kind(**row)
