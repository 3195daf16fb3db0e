"""What an open wait costs: memory of the control plane for each, and processor time of what happens meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import json
import resource
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator, Sequence

from benchmarks.plane.costs import loaded
from benchmarks.plane.findings import Findings
from benchmarks.plane.load import PLANE, Loaded, completed
from benchmarks.plane.sides import PROJECT, Side
from benchmarks.processes import KIB, memory

HOUR = 3600.0

SHORT = 60.0
"""Seconds of the longest wait before waits of an hour were allowed."""

TASKS = 50
"""Open tasks that the waiters are spread over."""

DESCRIPTORS = 60_000

_WARM = 300


async def waiters(found: Findings, sides: Sequence[Side], count: int, fewer: int) -> None:
    """`count` waits on each side; `fewer` where they end before so many could be opened."""
    with descriptors():
        for side in sides:
            async with loaded(side, 1) as each:
                await _measure(found, each, count, fewer)


async def _measure(found: Findings, each: Loaded, count: int, fewer: int) -> None:
    room, name = each.room, each.side.name
    stopped = await asyncio.to_thread(room.address, "stopped")
    (connection,) = await each.connections(1)
    tasks = [
        json.loads(await connection.call("POST", "/v1/tasks", {"to": stopped, "text": "wait"}))[
            "id"
        ]
        for _ in range(TASKS)
    ]
    seconds = HOUR
    try:
        await connection.call("GET", f"/v1/tasks/{tasks[0]}?timeout={HOUR:g}")
    except RuntimeError:
        seconds, count = SHORT, fewer
    async with _open(each, _WARM, seconds, tasks):
        pass
    await each.batch(completed, each.workers, 30, 1)
    alone = await each.batch(completed, each.workers, 50, 1)
    before = memory(each.parts()[PLANE]).rss
    spent = each.spent()[PLANE]
    async with _open(each, count, seconds, tasks):
        opening = each.spent()[PLANE] - spent
        grown = memory(each.parts()[PLANE]).rss - before
        beside = await each.batch(completed, each.workers, 50, 1)
        spent = each.spent()[PLANE]
        (connection,) = await each.connections(1)
        await connection.call("POST", f"/v1/tasks/{tasks[-1]}/cancel", {})
        await each.rest()
        told = each.spent()[PLANE] - spent
    found.keep("open wait: RSS", name, grown / count / KIB, "kB", "")
    found.keep("open wait: to open", name, 1000 * opening / count, "ms")
    found.keep("open wait: to tell", name, 1000 * told / (count / TASKS), "ms")
    found.keep("task x1, no waits: plane", name, alone.each(PLANE), "ms")
    found.keep(f"task x1, {count} waits: plane", name, beside.each(PLANE), "ms")


@contextlib.asynccontextmanager
async def _open(
    each: Loaded, count: int, seconds: float, tasks: Sequence[str]
) -> AsyncGenerator[None]:
    """So many open waits.

    Raises:
        RuntimeError: some were refused.
    """
    server = each.room.server
    words = ("-m", "benchmarks.plane.waiting", server["url"], server["token"])
    client = await asyncio.create_subprocess_exec(
        *(sys.executable, *words, str(count), str(seconds), *tasks),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=PROJECT,
    )
    if client.stdin is None or client.stdout is None:
        raise RuntimeError("the client of the waits has no pipes")
    try:
        if await client.stdout.readline() != b"open\n":
            raise RuntimeError("the waits could not be opened")
        await each.rest()
        yield
        client.stdin.close()
        said = (await client.stdout.readline()).decode().split()
        if refused := [status for status in said if not status.startswith("200:")]:
            raise RuntimeError(f"waits were refused: {' '.join(refused)}")
        await client.wait()
        await each.rest()
    finally:
        if client.returncode is None:
            client.kill()
            await client.wait()


@contextlib.contextmanager
def descriptors() -> Generator[None]:
    """Enough of them for every process that is started meanwhile."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
