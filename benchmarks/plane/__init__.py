"""The control plane of this commit beside that of an earlier one: what a message, a task and a waiter cost.

    python -m benchmarks plane [--quick] [--rows A,B] [--before COMMIT] [--after CHECKOUT] [--profile]

`waiting` runs as a program of this package, so it loads nothing by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse

    from benchmarks.report import Sheet


def parse(words: Sequence[str]) -> argparse.Namespace:
    """The options of this benchmark."""
    from benchmarks.plane.comparison import parse as read

    return read(words)


def run(sheet: Sheet, *, quick: bool, words: Sequence[str] = ()) -> None:
    """Measure; takes about fifteen minutes, under two with `quick`, and one more the first time."""
    from benchmarks.plane.comparison import run as compare

    compare(sheet, quick=quick, words=words)


def table(result: dict[str, Any]) -> str:
    """The result for a terminal."""
    from benchmarks.plane.findings import table as lay_out

    return lay_out(result)
