"""Request handlers alone, in one process and without a network: what ours costs beside the SDK's.

Run as a program in the environment of the peers, it prints seconds per call by handler.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import json
import sys
from pathlib import Path

from benchmarks.a2a.children import START_TIMEOUT, Child
from benchmarks.report import Sheet

HANDLERS = "benchmarks.a2a.handlers"
"""Module that has `cpu_per_call`."""

NAMES = {"sdk": "SDK's handler", "postroom": "ours", "agent alone": "no handler"}
ANSWERS = {"message": "Message", "task": "Task"}
TARGET = ">= 8"

FULL = (5, 300)
QUICK = (1, 100)
"""Rounds, and calls of each handler in one."""


async def measure(sheet: Sheet, python: Path, folder: Path, *, quick: bool) -> None:
    """Measure and write down; nothing if there is no module of handlers."""
    if importlib.util.find_spec(HANDLERS) is None:
        return
    rounds, calls = QUICK if quick else FULL
    command = (python, "-m", __name__, str(rounds), str(calls))
    child = await Child.start(command, folder / "alone.log")
    try:
        found = await child.hear(START_TIMEOUT * 2)
    finally:
        await child.end()
    for answer, title in ANSWERS.items():
        spent = {name: found[f"{name} {answer}"] for name in NAMES}
        for name, shown in NAMES.items():
            microseconds = [1e6 * seconds for seconds in spent[name]]
            sheet.add(f"handler alone, {title}: {shown}", microseconds, "µs")
        ratio = f"handler alone, {title}, CPU of SDK's / ours ({TARGET})"
        sheet.compare(ratio, spent["sdk"], spent["postroom"])


async def _rounds(rounds: int, calls: int) -> dict[str, list[float]]:
    handlers = importlib.import_module(HANDLERS)
    found: dict[str, list[float]] = {}
    for _ in range(rounds):
        for answer in ANSWERS:
            for name in NAMES:
                spent = await handlers.cpu_per_call(name, answer, calls=calls)
                found.setdefault(f"{name} {answer}", []).append(spent)
    return found


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_rounds(int(sys.argv[1]), int(sys.argv[2])))), flush=True)
