"""The comparison as a table for a terminal: for each work one block, for each contender one line, medians."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from benchmarks import report
from benchmarks.a2a.contenders import CONTENDERS
from benchmarks.a2a.findings import BUS, CLIENT, FIRST_P50, FIRST_P99, P50, P99, RATE, SERVER

_TITLE, _CELL = 32, 8
_GROUPS = {contender.title: contender.group for contender in CONTENDERS}


@dataclass(frozen=True, slots=True)
class Cell:
    """One measured value of the grid, as the name of its row tells.

    Attributes:
        work: what was done.
        concurrency: how many at a time.
        contender: title.
        measure: name.
        value: median.
    """

    work: str
    concurrency: int
    contender: str
    measure: str
    value: float

    @classmethod
    def of(cls, row: dict[str, Any]) -> Cell | None:
        """The cell of a row of a result; None for a row that is not of the grid."""
        key, bar, rest = row["metric"].partition(" | ")
        if not bar:
            return None
        work, _, at_a_time = key.rpartition(", ")
        contender, _, measure = rest.rpartition(": ")
        return cls(work, int(at_a_time.split()[0]), contender, measure, row["value"])


class Grid:
    """The cells of a result."""

    def __init__(self, result: dict[str, Any]) -> None:
        cells = [cell for row in result["rows"] if (cell := Cell.of(row))]
        self._values = {
            (cell.work, cell.concurrency, cell.contender, cell.measure): cell.value
            for cell in cells
        }
        self.works = list(dict.fromkeys(cell.work for cell in cells))
        self.contenders = list(dict.fromkeys(cell.contender for cell in cells))

    def value(self, work: str, concurrency: int, contender: str, measure: str) -> float | None:
        """A median; None where nothing was measured."""
        return self._values.get((work, concurrency, contender, measure))

    def concurrencies(self, work: str) -> list[int]:
        """That were measured of `work`."""
        return sorted({key[1] for key in self._values if key[0] == work})

    def group(self, name: str) -> list[str]:
        """Titles of the contenders of a group."""
        return [each for each in self.contenders if _GROUPS.get(each) == name]


def table(result: dict[str, Any]) -> str:
    """The whole result as text."""
    grid = Grid(result)
    rest = {**result, "rows": [row for row in result["rows"] if Cell.of(row) is None]}
    head, _, tail = report.table(rest).partition("\n\n")
    lines = [head, ""]
    for work in grid.works:
        lines += [*_block(grid, work), ""]
    return "\n".join([*lines, tail.lstrip("\n")])


def _block(grid: Grid, work: str) -> list[str]:
    counts = grid.concurrencies(work)
    busy = max((each for each in counts if each <= 16), default=counts[0])
    columns = [(RATE, each) for each in counts]
    columns += [(each, count) for each in (P50, P99) for count in counts]
    if any(grid.value(work, counts[0], each, FIRST_P50) is not None for each in grid.contenders):
        columns += [(each, count) for each in (FIRST_P50, FIRST_P99) for count in counts]
    columns += [(each, busy) for each in (CLIENT, SERVER, BUS)]
    lines = [work, _line("  medians", [_short(measure) for measure, _ in columns])]
    lines.append(_line("  at a time", [str(count) for _, count in columns]))
    for group in dict.fromkeys(_GROUPS.values()):
        titles = [each for each in grid.group(group) if _took_part(grid, work, each)]
        if titles:
            lines.append(f"  {group}")
        for title in titles:
            values = [grid.value(work, count, title, measure) for measure, count in columns]
            lines.append(_line(f"    {title}", ["-" if v is None else f"{v:g}" for v in values]))
    return lines


def _took_part(grid: Grid, work: str, title: str) -> bool:
    return any(grid.value(work, each, title, RATE) is not None for each in grid.concurrencies(work))


def _short(measure: str) -> str:
    words = {RATE: "calls/s", P50: "p50 ms", P99: "p99 ms", FIRST_P50: "1st p50"}
    more = {FIRST_P99: "1st p99", CLIENT: "client", SERVER: "server", BUS: "bus µs"}
    return (words | more)[measure]


def _line(title: str, cells: list[str]) -> str:
    return f"{title:<{_TITLE}}" + "".join(f"{cell:>{_CELL}}" for cell in cells)
