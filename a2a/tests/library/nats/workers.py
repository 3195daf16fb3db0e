"""Servers of the durable binding in processes of their own, for tests that end them without a word."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from library.servers import die_with_us

_ROOT = Path(__file__).parents[2]


@dataclass
class Worker:
    """A running worker and what it wrote down."""

    process: asyncio.subprocess.Process
    journal: Path

    def lines(self) -> list[str]:
        return self.journal.read_text().splitlines() if self.journal.exists() else []

    async def begun(self, count: int) -> list[str]:
        """What was written down, once it is that much."""
        async with asyncio.timeout(20):
            while len(lines := self.lines()) < count:  # noqa: ASYNC110 - another process's
                await asyncio.sleep(0.01)
        return lines

    async def kill(self) -> None:
        with suppress(ProcessLookupError):  # it may have ended
            self.process.kill()
        await self.process.wait()

    async def end(self) -> int:
        """End it in order; gives its status."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return await self.process.wait()


async def start(program: ModuleType, url: str, journal: Path, *arguments: object) -> Worker:
    """A worker that is ready."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        program.__name__,
        url,
        journal,
        *map(str, arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        preexec_fn=die_with_us,
        cwd=_ROOT,
        env={**os.environ, "PYTHONWARNINGS": "default"},
    )
    assert process.stdout is not None
    async with asyncio.timeout(30):
        assert await process.stdout.readline() == b"ready\n"
    return Worker(process, journal)


@asynccontextmanager
async def working(
    program: ModuleType, url: str, journal: Path, *arguments: object
) -> AsyncGenerator[Worker]:
    """A worker for the time of the block."""
    worker = await start(program, url, journal, *arguments)
    try:
        yield worker
    finally:
        await worker.kill()
