"""Three replicas of one agent on one nats-server."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
import pytest

from library.faults import replica
from library.faults.http import PATIENCE, Caller
from library.nats.durableagent import Desk, open_desk
from library.servers import die_with_us

_ROOT = Path(__file__).parents[2]


@dataclass
class Replica:
    """One process that serves the agent."""

    process: asyncio.subprocess.Process
    caller: Caller

    @property
    def pid(self) -> int:
        return self.process.pid

    async def kill(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()

    async def load(self) -> dict[str, int]:
        """Runs of tasks and asyncio tasks in the process."""
        return (await self.caller.http.get(self.caller.url)).json()


@dataclass
class Fleet:
    """The replicas of one agent."""

    desk: Desk
    folder: Path
    replicas: list[Replica] = field(default_factory=list)

    @property
    def callers(self) -> list[Caller]:
        return [each.caller for each in self.replicas]

    def journal(self, name: str) -> list[list[str]]:
        """What the agents have written about one name: a word, and who wrote it."""
        file = self.folder / "journal"
        lines = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
        return [[word, pid] for word, about, pid in lines if about == name]

    def words(self, name: str) -> list[str]:
        return [word for word, _ in self.journal(name)]

    async def noted(self, name: str, word: str, count: int = 1) -> None:
        await until(lambda: self.words(name).count(word) >= count)

    def let_go(self, name: str) -> None:
        (self.folder / f"go-{name}").touch()

    async def start(self) -> Replica:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            replica.__name__,
            self.desk.server.url,
            self.folder,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            preexec_fn=die_with_us,
            cwd=_ROOT,
            env={**os.environ, "OTEL_INSTRUMENTATION_A2A_SDK_ENABLED": "false"},
        )
        assert process.stdout is not None
        async with asyncio.timeout(PATIENCE):
            port = int(await process.stdout.readline())
        http = httpx2.AsyncClient(timeout=PATIENCE)
        started = Replica(process, Caller(http, f"http://127.0.0.1:{port}/"))
        self.replicas.append(started)
        return started


async def until(condition: Callable[[], object]) -> None:
    """Ask again until it is true: what is asked about is in other processes."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@asynccontextmanager
async def fleet_of(folder: Path, count: int) -> AsyncGenerator[Fleet]:
    async with open_desk(folder / "nats") as desk:
        fleet = Fleet(desk, folder)
        try:
            await asyncio.gather(*(fleet.start() for _ in range(count)))
            yield fleet
        finally:
            for each in fleet.replicas:
                await each.kill()
                await each.caller.http.aclose()


@pytest.fixture(scope="module")
async def fleet(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Fleet]:
    """Three replicas; a test that kills one starts another."""
    async with fleet_of(tmp_path_factory.mktemp("fleet"), 3) as made:
        yield made
