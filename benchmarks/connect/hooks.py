"""What a hook costs its client, and what `postroom connect run` costs its machine: 25 ms of CPU, 100 ms, 0.5 % idle."""

from __future__ import annotations

import resource
import time
from concurrent.futures import ThreadPoolExecutor
from statistics import median

from benchmarks.processes import memory, processor_time
from benchmarks.report import Sheet
from benchmarks.room import scratch_folder
from tests.connect.conftest import Connected, Terminal, until
from tests.e2e.conftest import running_room

SESSIONS, QUICK_SESSIONS = 100, 3
TIMES, QUICK_TIMES = 400, 8
IDLE, QUICK_IDLE = 30.0, 0.5
"""Seconds."""


def measure(sheet: Sheet, *, quick: bool) -> None:
    """Hooks of one session, alone and at once; then the process with many sessions that do nothing."""
    times = QUICK_TIMES if quick else TIMES
    with running_room() as room, scratch_folder() as scratch:
        mine = Connected(room, scratch)
        try:
            app = mine.client()
            app.run("begin")
            until(mine.status)
            sheet.add("run, no session: memory", [_megabytes(mine)], "MB")
            app.start()
            _hooks(sheet, app, times)
            sheet.add("run, one session: memory", [_megabytes(mine)], "MB")
            _idle(sheet, mine, quick=quick)
        finally:
            mine.close()


def _hooks(sheet: Sheet, app: Terminal, times: int) -> None:
    before = _children()
    alone = sorted(_timed(app, number) for number in range(times))
    cpu = (_children() - before) / times
    with ThreadPoolExecutor(4) as four:
        together = sorted(four.map(lambda number: _timed(app, number), range(times)))
    sheet.add("hook: CPU", [1e3 * cpu], "ms")
    sheet.add("hook alone, p50", [1e3 * median(alone)], "ms")
    sheet.add("hook alone, p99", [1e3 * alone[-1 - times // 100]], "ms")
    sheet.add("hook, 4 at once, p99", [1e3 * together[-1 - times // 100]], "ms")


def _idle(sheet: Sheet, mine: Connected, *, quick: bool) -> None:
    server = mine.room.server
    parts = {
        "run": mine.status()["pid"],
        "control plane": server["pid"],
        "its nats-server": server["nats_pid"],
    }
    count, seconds = (QUICK_SESSIONS, QUICK_IDLE) if quick else (SESSIONS, IDLE)
    for number in range(count):
        mine.client(folder=f"app-{number}").run("SessionStart", source="startup")
    until(lambda: len(mine.sessions()) > count)
    time.sleep(seconds / 5)
    before = {name: processor_time(pid) for name, pid in parts.items()}
    time.sleep(seconds)
    for name, pid in parts.items():
        share = (processor_time(pid) - before[name]) / seconds
        sheet.add(f"{name}, {count} idle sessions: CPU", [100 * share], "%")
    sheet.add(f"run, {count} idle sessions: memory", [_megabytes(mine)], "MB")


def _megabytes(mine: Connected) -> float:
    return memory([mine.status()["pid"]]).rss / 1e6


def _timed(app: Terminal, number: int) -> float:
    began = time.monotonic()
    app.at("PreToolUse", tool_use_id=f"{number}")
    return time.monotonic() - began


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
