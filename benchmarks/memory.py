"""Memory of an idle post room with one sandboxed worker, beside a bare interpreter with the NATS client."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Generator

from benchmarks.processes import MIB, Sandboxed, descendants, is_wall, memory
from benchmarks.report import Sheet
from benchmarks.room import ECHO, PostRoom, post_room

BARE = "python with nats-py imported"
SPACING = 0.4
"""Seconds between two readings: what is idle may still tidy up."""


def run(sheet: Sheet, *, quick: bool) -> None:
    """Measure; takes about ten seconds."""
    with post_room() as room, _bare(room.env) as bare:
        parts = {BARE: [bare]} | _parts(room)
        rss: dict[str, list[float]] = {name: [] for name in parts}
        pss: dict[str, list[float]] = {name: [] for name in parts}
        for _ in range(1 if quick else 6):
            time.sleep(SPACING)
            for name, pids in parts.items():
                read = memory(pids)
                rss[name].append(read.rss / MIB)
                if read.pss is not None:
                    pss[name].append(read.pss / MIB)
    for name in parts:
        sheet.add(f"{name}: RSS", rss[name], "MiB")
        if pss[name]:
            sheet.add(f"{name}: PSS", pss[name], "MiB")
    _compare(sheet, rss, pss)


def _compare(sheet: Sheet, rss: dict[str, list[float]], pss: dict[str, list[float]]) -> None:
    for name in ("idle sidecar", "control plane"):
        sheet.compare(f"{name} / bare python, RSS", rss[name], rss[BARE])
        if pss[name] and pss[BARE]:
            sheet.compare(f"{name} / bare python, PSS", pss[name], pss[BARE])
    sheet.note(
        "PSS divides a page by the number of processes that share it; RSS counts it in full."
    )
    sheet.note("The worker is examples/echo.toml in bubblewrap; nothing was sent to it.")


def _parts(room: PostRoom) -> dict[str, list[int]]:
    """The processes of the post room and of one idle worker."""
    worker = room.idle_worker("idle", ECHO)
    server = room.server
    inside = Sandboxed.below(worker["pid"])
    walls = [pid for pid, words in descendants(server["pid"]).items() if is_wall(words)]
    return {
        "control plane": [server["pid"]],
        "nats-server": [server["nats_pid"]],
        "idle sidecar": [inside.sidecar],
        f"its sandbox ({len(walls)} bwrap processes)": walls,
        "its agent (sed)": inside.agent,
    }


@contextlib.contextmanager
def _bare(env: dict[str, str]) -> Generator[int]:
    """The process id of an interpreter that has imported the NATS client and waits."""
    program = "import sys, nats; print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", program], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        try:
            if process.stdout is None or not process.stdout.readline():
                raise RuntimeError("the bare interpreter did not start")
            yield process.pid
        finally:
            process.kill()
