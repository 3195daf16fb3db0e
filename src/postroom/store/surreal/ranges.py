"""A list as a range of one key: as a query, and as a question to a row that is not stored yet."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Only:
    """A condition, in the words of SurrealDB and in ours."""

    text: str
    holds: Callable[[Row], bool]
    values: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Range:
    """The rows of a table whose `key` lies between two values, in its order.

    Attributes:
        among: field to the values that it may have.
        only: a further condition.
    """

    key: str
    low: Any
    high: Any
    among: Mapping[str, Collection[Any]] = field(default_factory=dict)
    only: Only | None = None

    def where(self, table: str) -> str:
        """The condition, with the index that has the order."""
        more = "".join(f" AND {name} IN ${name}" for name in self.among)
        more += f" AND {self.only.text}" if self.only else ""
        return f"{table} WITH INDEX {table}_{self.key} WHERE {self.key} > $low AND {self.key} < $high{more}"

    def values(self) -> dict[str, Any]:
        """The parameters of `where`."""
        among = {name: list(values) for name, values in self.among.items()}
        own = self.only.values if self.only else {}
        return {"low": self.low, "high": self.high, **among, **own}

    def holds(self, row: Row) -> bool:
        """Whether a row is in it."""
        at = row.get(self.key)
        if at is None or not self.low < at < self.high:
            return False
        if self.only is not None and not self.only.holds(row):
            return False
        return all(row[name] in values for name, values in self.among.items())
