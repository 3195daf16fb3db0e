"""A2A over NATS beside the official SDK's transports and others, with the same work; and what carries it.

Peers import this package too, in environments without Postroom's dependencies, so it loads nothing by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmarks.report import Sheet


def run(sheet: Sheet, *, quick: bool) -> None:
    """Measure; takes about ten minutes, and one more the first time."""
    from benchmarks.a2a.comparison import run as compare

    compare(sheet, quick=quick)


def table(result: dict[str, Any]) -> str:
    """The result for a terminal."""
    from benchmarks.a2a.layout import table as lay_out

    return lay_out(result)


def plot(result: dict[str, Any]) -> str:
    """The result as SVG."""
    from benchmarks.a2a.plot import plot as draw

    return draw(result)
