"""Runs Postroom's command line with a look inside: `python watched.py FILE WORDS...`; part of `plane`, not of Postroom.

A line on the descriptor `PLANE_ASK` writes what was found since the last one to FILE, as JSON: the database's
counters, with `PLANE_PROFILE` where the processor time went, and after a line `trace` what the
database was asked for until the next line. It imports nothing that Postroom does not, and runs
in the environment of either side.
"""

from __future__ import annotations

import collections
import contextlib
import gc
import json
import os
import runpy
import signal
import sqlite3
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any

INTERVAL = 0.002
"""Seconds of processor time between two samples."""

DEEP = 60
"""Frames of a stack that are kept."""

TRACED = 5000
"""Statements that are kept."""

Key = tuple[str, ...]


class Profiler:
    """Samples where the processor time of each thread goes, from a timer that counts processor time.

    What each thread has used is exact. It is spread over the stacks at which the thread was found when it had used
    most of the time since the last sample. The handler runs in the main thread, so the stacks of others are those at
    which they let go of the interpreter.
    """

    def __init__(self) -> None:
        self._found: collections.Counter[tuple[str, Key]] = collections.Counter()
        self._spent: collections.Counter[str] = collections.Counter()
        self._last: dict[int, int] = {}

    def start(self) -> None:
        """Begin."""
        signal.signal(signal.SIGPROF, self._sample)
        signal.setitimer(signal.ITIMER_PROF, INTERVAL, INTERVAL)

    def _sample(self, _number: int, interrupted: FrameType | None) -> None:
        frames = sys._current_frames()  # noqa: SLF001 (there is no other way)
        spent: dict[str, int] = {}
        stacks: dict[str, FrameType | None] = {}
        for thread in threading.enumerate():
            if thread.ident is None:
                continue
            try:
                now = time.clock_gettime_ns(time.pthread_getcpuclockid(thread.ident))
            except OSError:
                continue  # it has ended
            main = thread is threading.main_thread()
            name = "main" if main else thread.name
            spent[name] = now - self._last.get(thread.ident, now)
            stacks[name] = interrupted if main else frames.get(thread.ident)
            self._last[thread.ident] = now
        total = sum(spent.values())
        for name, used in spent.items():
            self._spent[name] += used
            if 2 * used > total:
                self._found[name, _stack(stacks[name])] += 1

    def taken(self) -> list[tuple[str, Key, int]]:
        """Thread, stack and nanoseconds of what was found since the last call."""
        found, self._found = self._found, collections.Counter()
        spent, self._spent = self._spent, collections.Counter()
        samples: collections.Counter[str] = collections.Counter()
        for (thread, _), number in found.items():
            samples[thread] += number
        return [
            (thread, stack, spent[thread] * number // samples[thread])
            for (thread, stack), number in found.items()
        ]


def _stack(frame: FrameType | None) -> Key:
    stack = []
    while frame is not None and len(stack) < DEEP:
        code = frame.f_code
        stack.append(f"{code.co_filename}:{frame.f_lineno}:{code.co_qualname}")
        frame = frame.f_back
    return tuple(stack)


def _counters() -> dict[str, int]:
    """The sum over all open databases."""
    found: collections.Counter[str] = collections.Counter()
    gc.unfreeze()  # a post room that has started has frozen what is there, which the collector then lists no more
    for thing in gc.get_objects():
        if type(thing).__name__ == "Database" and hasattr(thing, "statistics"):
            said = thing.statistics()
            names = getattr(said, "__dataclass_fields__", {})
            found.update({name: getattr(said, name) for name in names})
    return dict(found)


class Trace:
    """The statements that the database is asked for, with their values; SQLite's have them written out."""

    def __init__(self) -> None:
        self.asked: collections.deque[tuple[str, list[Any]]] = collections.deque(maxlen=TRACED)
        self._on = False
        self._connections: list[sqlite3.Connection] = []
        self._connect = sqlite3.connect
        vars(sqlite3)["connect"] = self._keep

    def _keep(self, *arguments: Any, **named: Any) -> sqlite3.Connection:
        connection = self._connect(*arguments, **named)
        self._connections.append(connection)
        return connection

    def switch(self, *, on: bool) -> None:
        """Begin or end it on all connections."""
        self._on = on
        for connection in self._connections:
            with contextlib.suppress(sqlite3.Error):  # closed, or of another thread alone
                connection.set_trace_callback(self._noted if on else None)
        psycopg = sys.modules.get("psycopg")
        if psycopg is not None and psycopg.RawCursor.execute.__name__ != "noting":
            psycopg.RawCursor.execute = self._noting(psycopg.RawCursor.execute)

    def _noted(self, sql: str) -> None:
        self.asked.append((sql, []))

    def _noting(self, execute: Any) -> Any:
        def noting(cursor: Any, sql: Any, values: Any = None, **more: Any) -> Any:
            if self._on and isinstance(sql, str):
                self.asked.append((sql, list(values or ())))
            return execute(cursor, sql, values, **more)

        return noting


def _serve(asked: int, file: Path, profiler: Profiler | None, trace: Trace) -> None:
    with os.fdopen(asked) as lines:
        for line in lines:
            trace.switch(on=line.strip() == "trace")
            stacks = profiler.taken() if profiler else []
            found = {"counters": _counters(), "stacks": stacks, "asked": list(trace.asked)}
            trace.asked.clear()
            new = file.with_suffix(".new")
            new.write_text(json.dumps(found, default=str), encoding="utf-8")
            new.replace(file)


def main(file: str, words: list[str]) -> None:
    """Run it."""
    profiler = Profiler() if os.environ.pop("PLANE_PROFILE", "") else None
    asked = int(os.environ.pop("PLANE_ASK"))
    os.set_inheritable(asked, False)
    threading.Thread(
        target=_serve, args=(asked, Path(file), profiler, Trace()), name="watched", daemon=True
    ).start()
    if profiler is not None:
        profiler.start()
    sys.argv = ["postroom", *words]
    sys.path.pop(0)  # the folder of this file
    runpy.run_module("postroom", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
