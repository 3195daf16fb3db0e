"""Starting: a post room, `--help`, a worker's sidecar; and the memory of what is idle."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from benchmarks.cli import processor_time as of_command
from benchmarks.plane.costs import TEMPLATE
from benchmarks.plane.findings import Findings
from benchmarks.plane.load import PLANE, SERVER, processes
from benchmarks.plane.sides import Side
from benchmarks.processes import MIB, Sandboxed, memory, processor_time
from benchmarks.room import command_line, environment, post_room, scratch_folder
from benchmarks.up import start

WORSE = "<= 1.1"
"""What `not worse` means within the noise."""


async def starts(found: Findings, sides: Sequence[Side], rounds: int) -> None:
    """Each round starts each side."""
    for number in range(rounds + 1):
        for side in [*sides] if number % 2 else [*sides][::-1]:
            kept = found if number else Findings()  # the first round warms up
            await _up(kept, side)
            await asyncio.to_thread(_worker, kept, side)


async def _up(found: Findings, side: Side) -> None:
    with scratch_folder() as scratch:
        fresh = await start(scratch, side.python)
        known = await start(scratch, side.python)
        found.keep("up, fresh state: ready", side.name, fresh.ready, "ms", WORSE)
        found.keep("up, existing state: ready", side.name, known.ready, "ms", WORSE)
        words = command_line(scratch / "state", "--help", python=side.python)
        spent = 1000 * of_command(words, environment(scratch, side.python))
        found.keep("--help: CPU", side.name, spent, "ms", WORSE)


def _worker(found: Findings, side: Side) -> None:
    with post_room(side.python) as room:
        spent = sum(map(processor_time, processes(room)[PLANE]))
        found.keep("up: CPU", side.name, 1000 * spent, "ms", WORSE)
        worker = room.idle_worker("one", TEMPLATE)
        sidecar = Sandboxed.below(worker["pid"]).sidecar
        found.keep("sidecar start: CPU", side.name, 1000 * processor_time(sidecar), "ms", WORSE)
        parts = {"sidecar": [sidecar]} | {
            name: pids for name, pids in processes(room).items() if name in (PLANE, SERVER)
        }
        for name, pids in parts.items():
            title = "plane" if name == PLANE else name
            found.keep(f"idle {title}: RSS", side.name, memory(pids).rss / MIB, "MiB", WORSE)
