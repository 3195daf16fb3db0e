"""The post office: what a grant costs, what readers and those that wait get, webhooks. Each part is a module here."""

from __future__ import annotations

from benchmarks.post import oracle, pages, reading, sends, telling, waiting
from benchmarks.report import Sheet

PARTS = (sends, pages, reading, waiting, telling, oracle)


def run(sheet: Sheet, *, quick: bool = False) -> None:
    """Measure all parts."""
    for part in PARTS:
        part.measure(sheet, quick=quick)
