"""A server of the A2A SDK in a process of its own, which a test kills while it works."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from a2a.server.agent_execution import RequestContext
from a2a.server.tasks import TaskUpdater

from library.agents import Agent
from postroom.bus.parent_death import die_with_parent
from tests.remote.foreign import acts, foreign

ROOT = Path(__file__).parents[2]


@asynccontextmanager
async def foreign_process(
    port: int, version: str, how: str
) -> AsyncGenerator[Callable[[], Awaitable[None]]]:
    """The server, killed by SIGKILL when the block ends; gives the wait until it is at work.

    Args:
        how: "hang" never answers a request, "go" does.
    """
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.remote.foreign_process", str(port), version, how),
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=asyncio.subprocess.PIPE,
        preexec_fn=partial(die_with_parent, signal.SIGKILL),
    )
    assert process.stdout is not None

    async def said(line: bytes) -> None:
        assert process.stdout is not None
        async with asyncio.timeout(60):
            assert await process.stdout.readline() == line

    try:
        await said(b"serving\n")
        yield partial(said, b"working\n")
    finally:
        process.kill()
        await process.wait()


async def _main(port: int, version: str, how: str) -> None:
    async def work(agent: Agent, context: RequestContext, queue: Any, updater: TaskUpdater) -> None:
        sys.stdout.write("working\n")
        sys.stdout.flush()
        if how == "hang":
            await asyncio.get_running_loop().create_future()
        await acts(agent, context, queue, updater)

    agent = Agent(work, quiet=how == "hang")
    async with foreign(("/rpc", "JSONRPC", version), streaming=False, port=port, agent=agent):
        sys.stdout.write("serving\n")
        sys.stdout.flush()
        await asyncio.get_running_loop().create_future()


if __name__ == "__main__":
    asyncio.run(_main(int(sys.argv[1]), sys.argv[2], sys.argv[3]))
