"""Runs the rows that are wanted, on both sides."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

from benchmarks.plane import findings, sides
from benchmarks.plane.costs import WORKERS, WORKS, costs, loaded, sends
from benchmarks.plane.findings import Findings
from benchmarks.plane.inside import transactions
from benchmarks.plane.pages import pages
from benchmarks.plane.profiling import profile
from benchmarks.plane.starts import starts
from benchmarks.plane.stored import stored
from benchmarks.plane.waiters import waiters
from benchmarks.report import Sheet

ROWS = ("costs", "sends", "stored", "transactions", "waiters", "pages", "starts")

FULL = {
    "rounds": 5,
    "counts": {1: 150, 16: 400},
    "sends": 200,
    "stored": 60,
    "starts": 5,
    "many": 100_000,
    "waiters": (9_900, 1_000),
}
QUICK = {
    "rounds": 2,
    "counts": {1: 50, 16: 160},
    "sends": 50,
    "stored": 20,
    "starts": 1,
    "many": 5_000,
    "waiters": (1000, 1000),
}

NOTES = (
    f"Each side: its own environment, post room, nats-server, {WORKERS} workers in bubblewrap that answer at once.",
    "One client makes the requests of both, in turns; it shares the cores with all of these.",
    "x16: 16 at a time. plane, nats, sidecars: milliseconds of processor time of all their threads for each one.",
    "plane: every process that the control plane is made of; its time counts until it rests.",
    "message: POST /v1/messages, then GET with wait=answered. task: POST /v1/tasks, then GET with wait=final.",
    "A ratio is now / before, the median of the rounds' ratios, with the least and the greatest.",
)


def parse(words: Sequence[str]) -> argparse.Namespace:
    """The options of this benchmark."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks plane")
    parser.add_argument("--rows", default="", help=f"some of {','.join(ROWS)}")
    parser.add_argument("--before", default=sides.BEFORE, help="commit, or checkout with a .venv")
    parser.add_argument("--after", default=sides.OWN, help="as --before; default: this checkout")
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument(
        "--profile", action="store_true", help="say where the time goes, and measure nothing else"
    )
    return parser.parse_args(words)


def run(sheet: Sheet, *, quick: bool, words: Sequence[str] = ()) -> None:
    """Measure."""
    chosen = parse(words)
    rows = chosen.rows.split(",") if chosen.rows else ROWS
    plan: dict[str, Any] = dict(QUICK if quick else FULL)
    if chosen.rounds:
        plan["rounds"] = chosen.rounds
    if chosen.profile:
        _profile([each for each in (chosen.before, chosen.after) if each], plan["counts"])
        return
    both = [sides.side(findings.BEFORE, chosen.before), sides.side(findings.NOW, chosen.after)]
    found = Findings()
    asyncio.run(_measure(found, both, rows, plan))
    found.tell(sheet)
    for each in both:
        sheet.note(f"{each.name}: {each.commit}")
    for text in NOTES:
        sheet.note(text)


def _profile(chosen: Sequence[str], counts: dict[int, int]) -> None:
    for wanted in chosen:
        for name in WORKS:
            for concurrent, count in counts.items():
                each = sides.side(wanted, wanted)
                print(asyncio.run(profile(each, name, concurrent, count)), flush=True)


async def _measure(
    found: Findings, both: Sequence[sides.Side], rows: Sequence[str], plan: dict[str, Any]
) -> None:
    if {"costs", "sends", "stored"} & set(rows):
        async with AsyncExitStack() as stack:
            rooms = [await stack.enter_async_context(loaded(each)) for each in both]
            if "costs" in rows:
                await costs(found, rooms, plan["rounds"], plan["counts"])
            if "sends" in rows:
                await sends(found, rooms, plan["rounds"], plan["sends"])
            if "stored" in rows:
                await stored(found, rooms, plan["rounds"], plan["stored"])
    if "transactions" in rows:
        await transactions(found, both, WORKS, plan["counts"])
    if "waiters" in rows:
        await waiters(found, both, *plan["waiters"])
    if "pages" in rows:
        await pages(found, both[-1], plan["rounds"], plan["many"])
    if "starts" in rows:
        await starts(found, both, plan["starts"])
