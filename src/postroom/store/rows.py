"""From what a selection finds to frozen rows, by column name."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import Connection, Select

T = TypeVar("T")


def all_of(connection: Connection, kind: Callable[..., T], found: Select) -> list[T]:
    """Everything that `found` finds, each as a `kind`, whose fields are named like the columns."""
    return [kind(**row) for row in connection.execute(found).mappings()]


def first_of(connection: Connection, kind: Callable[..., T], found: Select) -> T | None:
    """The first that `found` finds as a `kind`, or None."""
    row = connection.execute(found).mappings().first()
    return None if row is None else kind(**row)
