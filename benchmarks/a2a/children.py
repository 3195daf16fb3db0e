"""The processes of a comparison: servers and clients of the contenders, and what stands between them."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import signal
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.a2a.environment import PROJECT
from benchmarks.a2a.peers.kinds import Options
from benchmarks.a2a.peers.load import CALL_TIMEOUT, Order, Turn
from benchmarks.processes import processor_time
from postroom.bus.parent_death import die_with_parent
from postroom.bus.server_binary import find_binary

START_TIMEOUT = 60.0
STOP_TIMEOUT = 10.0
_LINE_LIMIT = 1 << 20


class PeerFailed(Exception):
    """A contender cannot take part, or not any longer; the text says why."""


class Child:
    """A process of ours that is spoken to in lines of JSON; it ends when its input does."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self._process = process
        self._log = log

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    @classmethod
    async def start(cls, command: Sequence[str | Path], log: Path) -> Child:
        """Start it; its standard error goes to `log`."""
        with log.open("wb") as errors:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                cwd=PROJECT,
                limit=_LINE_LIMIT,
                preexec_fn=die_with_parent(signal.SIGKILL),
            )
        return cls(process, log)

    async def tell(self, value: dict[str, Any]) -> None:
        """Write a line."""
        if self._process.stdin is not None:
            self._process.stdin.write(json.dumps(value).encode() + b"\n")
            await self._process.stdin.drain()

    async def hear(self, timeout: float) -> dict[str, Any]:
        """Read a line of JSON.

        Raises:
            PeerFailed: none came, or one that reports an error.
        """
        value = json.loads(await self.line(timeout))
        if "error" in value:
            raise PeerFailed(value["error"])
        return value

    async def line(self, timeout: float) -> str:
        """Read a line.

        Raises:
            PeerFailed: none came.
        """
        line = b""
        if self._process.stdout is not None:
            try:
                async with asyncio.timeout(timeout):
                    line = await self._process.stdout.readline()
            except TimeoutError:
                raise PeerFailed(f"nothing was heard for {timeout:g} s") from None
        if not line:
            raise PeerFailed(self._last_words())
        return line.decode().strip()

    async def end(self) -> None:
        """End it, by force if it takes long."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            async with asyncio.timeout(STOP_TIMEOUT):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()

    def _last_words(self) -> str:
        said = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return said[-1] if said else "its process ended"


Runner = Sequence[str | Path]
"""What a peer is started with: see `Environments.runner`."""


async def peer(runner: Runner, role: str, options: Options, folder: Path) -> Child:
    """Start a server ("serve") or a client ("call")."""
    said = json.dumps(dataclasses.asdict(options))
    log = folder / f"{options.name or options.kind}-{role}.log"
    return await Child.start((*runner, role, said), log)


@asynccontextmanager
async def nats_server(folder: Path) -> AsyncGenerator[tuple[str, int]]:
    """Address and process id of a nats-server with JetStream on a free port."""
    command = (find_binary(), "--addr", "127.0.0.1", "--port", "-1", "--jetstream")
    places = ("--store_dir", folder / "jetstream", "--ports_file_dir", folder)
    process = await asyncio.create_subprocess_exec(
        *command,
        *places,
        stderr=asyncio.subprocess.DEVNULL,
        preexec_fn=die_with_parent(signal.SIGKILL),
    )
    try:
        async with asyncio.timeout(START_TIMEOUT):
            # The server gives no other sign.
            while not (files := list(folder.glob("*.ports"))) or not files[0].read_text():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        yield json.loads(files[0].read_text())["nats"][0], process.pid
    finally:
        process.kill()
        await process.wait()


@dataclass(frozen=True, slots=True)
class Cost:
    """Microseconds of processor time per call."""

    client: float
    server: float
    bus: float


class Pair:
    """A server and a client of one contender, and the process between them if there is one."""

    def __init__(self, server: Child, client: Child, bus: int | None) -> None:
        self.server = server
        self.client = client
        self._bus = bus

    @classmethod
    async def start(
        cls,
        stack: AsyncExitStack,
        runner: Runner,
        options: Options,
        folder: Path,
        bus: int | None = None,
    ) -> Pair:
        """Start both; they end with `stack`.

        Raises:
            PeerFailed: one of them did not start.
        """
        server = await peer(runner, "serve", options, folder)
        stack.push_async_callback(server.end)
        address = (await server.hear(START_TIMEOUT))["address"]
        client = await peer(runner, "call", dataclasses.replace(options, address=address), folder)
        stack.push_async_callback(client.end)
        await client.hear(START_TIMEOUT)
        return cls(server, client, bus)

    async def turn(self, order: Order) -> tuple[Turn, Cost]:
        """Do `order`, and see what it cost.

        Raises:
            PeerFailed: a call failed.
        """
        pids = [self.client.pid, self.server.pid, *([self._bus] if self._bus else [])]
        before = [processor_time(pid) for pid in pids]
        await self.client.tell(dataclasses.asdict(order))
        done = Turn(**await self.client.hear(order.seconds + 2 * CALL_TIMEOUT))
        spent = [processor_time(pid) - each for pid, each in zip(pids, before, strict=True)]
        each = [1e6 * seconds / done.count for seconds in spent]
        return done, Cost(each[0], each[1], each[2] if self._bus else 0.0)


OWN_RUNNER: Runner = (sys.executable, "-m", "benchmarks.a2a.peers")
"""In the project's own environment; enough for what needs no package of the others."""
