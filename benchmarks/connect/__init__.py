"""People's own sessions: what it costs to reach the post room from them. Each part is a module here."""

from __future__ import annotations

from benchmarks.connect import calls, hooks, waking
from benchmarks.report import Sheet

PARTS = (calls, hooks, waking)


def run(sheet: Sheet, *, quick: bool = False) -> None:
    """Measure all parts."""
    for part in PARTS:
        part.measure(sheet, quick=quick)
