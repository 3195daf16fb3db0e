"""Start of a post room beside that of its nats-server alone, on a fresh state folder and on one that exists."""

from __future__ import annotations

import asyncio
import contextlib
import re
import sys
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.connection import Connection
from benchmarks.report import Sheet
from benchmarks.room import DEADLINE, command_line, environment, scratch_folder
from postroom.bus.server_binary import find_binary

_LISTENS = re.compile(r"client connections on (\S+):(\d+)")
_API = re.compile(r"http://\S+")
_READY = re.compile("ready after")
_BUS = re.compile(r"nats://([^\s:]+):(\d+)")


@dataclass(frozen=True, slots=True)
class Start:
    """Milliseconds from the start of the process.

    Attributes:
        bus: until `/livez` answered and the bus greeted.
        ready: until `/readyz` said so.
    """

    bus: float
    ready: float


def run(sheet: Sheet, *, quick: bool) -> None:
    """Measure; takes about twenty seconds."""
    raw: list[float] = []
    fresh: list[Start] = []
    known: list[Start] = []
    with scratch_folder() as scratch:
        for number in range(1 if quick else 4):
            folder = scratch / str(number)
            folder.mkdir()
            raw.append(asyncio.run(_nats_server(folder / "store")))
            fresh.append(asyncio.run(start(folder)))
            known.append(asyncio.run(start(folder)))
    sheet.add("nats-server alone: to its greeting", raw, "ms")
    for name, starts in (("fresh state", fresh), ("existing state", known)):
        bus, ready = [start.bus for start in starts], [start.ready for start in starts]
        sheet.add(f"postroom up, {name}: to /livez and bus", bus, "ms")
        sheet.add(f"postroom up, {name}: to /readyz", ready, "ms")
        sheet.compare(f"/livez and bus / alone, {name}", bus, raw)
        sheet.compare(f"/readyz / alone, {name}", ready, raw)
    sheet.note(
        "nats-server alone: an empty JetStream store, no accounts, until its INFO line is read."
    )
    sheet.note(
        "Fresh state: keys, streams and database are made. Existing state: they are there, without messages."
    )


async def _nats_server(store: Path) -> float:
    words = [str(find_binary()), "-a", "127.0.0.1", "-p", "-1", "-js", "-sd", str(store)]
    async with _started(words, environment(store.parent)) as (begin, output):
        await _greeting(*_place(await _line_with(_LISTENS, output)))
        return _since(begin)


async def start(folder: Path, python: str = sys.executable) -> Start:
    """Start a post room with its state in `folder`, and end it."""
    ports = ("--port", "0", "--nats-port", "0")
    words = command_line(folder / "state", "up", *ports, python=python)
    async with _started(words, environment(folder, python)) as (begin, output):
        url = (await _line_with(_API, output)).group()
        await _greeting(*_place(await _line_with(_BUS, output)))
        await _live(url)
        bus = _since(begin)
        await _line_with(_READY, output)
        async with Connection(url) as connection:
            await connection.call("GET", "/readyz")
        return Start(bus, _since(begin))


async def _live(url: str) -> None:
    """Ask `/livez` until it answers: the address is printed a moment before the socket listens."""
    while True:
        with contextlib.suppress(ConnectionRefusedError):
            async with Connection(url) as connection:
                await connection.call("GET", "/livez")
                return
        await asyncio.sleep(0.002)


def _since(begin: float) -> float:
    return 1000 * (time.perf_counter() - begin)


def _place(found: re.Match[str]) -> tuple[str, int]:
    return found[1], int(found[2])


@contextlib.asynccontextmanager
async def _started(
    words: list[str], env: dict[str, str]
) -> AsyncGenerator[tuple[float, asyncio.StreamReader]]:
    """A process, the moment of its start, and what it prints; it is ended in the end, and killed if it does not."""
    begin = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        *words,
        env=env,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        if process.stdout is None:
            raise RuntimeError("the process has no output")
        async with asyncio.timeout(DEADLINE):
            yield begin, process.stdout
    finally:
        await _end(process)


async def _end(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        await asyncio.wait_for(process.communicate(), DEADLINE)
    except TimeoutError:
        process.kill()
        await process.wait()


async def _line_with(pattern: re.Pattern[str], output: asyncio.StreamReader) -> re.Match[str]:
    said: list[str] = []
    while line := (await output.readline()).decode(errors="replace"):
        said.append(line)
        if found := pattern.search(line):
            return found
    raise RuntimeError("it ended early: " + "".join(said[-20:]))


async def _greeting(host: str, port: int) -> None:
    reader, writer = await asyncio.open_connection(host, port, limit=1024 * 1024)
    try:
        if not (await reader.readline()).startswith(b"INFO "):
            raise RuntimeError("what listens there does not greet as a nats-server")
    finally:
        writer.close()
