"""Events of workers: from the POST of a sidecar to a WebSocket client, beside a raw record; and 50 workers at once."""

from __future__ import annotations

import asyncio
import json
import math
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nats.aio.client import Client as NatsClient
from nats.aio.msg import Msg

from benchmarks.buses import PLAIN, TIMEOUT, connected, follow, plain_stream
from benchmarks.connection import Connection
from benchmarks.eventplane import KEY, token_of
from benchmarks.processes import MIB, memory, processor_time
from benchmarks.report import Sheet
from benchmarks.room import scratch_folder
from benchmarks.spread import percentile
from postroom.bus.embedded import EmbeddedServer
from postroom.bus.server_config import ServerConfig
from postroom.identity.trust import Trust
from postroom.protocol.limits import MAX_EVENTS

ROOT = Path(__file__).resolve().parent.parent
TEXT = "I read the file, and change two lines of it. " * 4
"""Of one event: 180 characters."""

INTERVAL = 0.05
"""Seconds between two events of a worker: 20 a second."""

NOTES = (
    "raw: nats-py publishes into a plain stream on disk; from before the publish until its consumer has the record.",
    "event: POST /sdk-events of one event; from before the POST until a WebSocket client has it.",
    "Between them are the log (as for raw), the fold into SQLite, and HTTP.",
    "The two take turns, one record at a time, on one server.",
    "many: each worker makes 20 events a second and reports what has gathered once its last report is stored.",
    "A WebSocket client follows each worker. One process plays all workers and clients, and shares the cores.",
    "many: lost counts what did not come, or not in its order. delay: from when an event was made.",
    "growth: resident memory of the control plane at the end beside that after a fifth of the time.",
)


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is done."""

    rounds: int
    singles: int
    workers: int
    seconds: float


FULL = Plan(rounds=5, singles=200, workers=50, seconds=300.0)
QUICK = Plan(rounds=1, singles=30, workers=50, seconds=5.0)


def run(sheet: Sheet, *, quick: bool) -> None:
    """Measure; takes about six minutes."""
    asyncio.run(_measure(sheet, QUICK if quick else FULL))


async def _measure(sheet: Sheet, plan: Plan) -> None:
    with scratch_folder() as folder:
        async with AsyncExitStack() as stack:
            server, trust = await server_of(folder, stack)
            plane = await stack.enter_async_context(plane_of(folder, server.url, plan.workers))
            await _latency(sheet, plan, plane, await connected(server.url, trust, stack))
            await _many(sheet, plan, plane)
    for text in NOTES:
        sheet.note(text)


async def server_of(folder: Path, stack: AsyncExitStack) -> tuple[EmbeddedServer, Trust]:
    """A nats-server for the control plane, and its keys."""
    trust = Trust.load_or_create(folder / "keys")
    config = ServerConfig(
        folder=folder / "nats",
        host="127.0.0.1",
        port=0,
        operator_jwt=trust.operator_jwt,
        system_account=trust.system_account,
        preload=trust.account_jwts(),
        proxies=(trust.proxy_key.public,),
    )
    server = await EmbeddedServer.start(config)
    stack.push_async_callback(server.stop)
    return server, trust


@dataclass(frozen=True, slots=True)
class Plane:
    """The running control plane."""

    pid: int
    port: int
    door: int
    workers: list[str]

    def sidecar(self, uid: str) -> Connection:
        """A connection through the door of a worker."""
        return Connection(f"http://127.0.0.1:{self.door}", token_of(uid))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@asynccontextmanager
async def plane_of(folder: Path, url: str, workers: int) -> AsyncGenerator[Plane]:
    """A control plane in a process of its own."""
    port, door = _free_port(), _free_port()
    words = (str(folder), url, str(port), str(door), str(workers))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.eventplane", *words),
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None  # noqa: S101 (a pipe was asked for)
        async with asyncio.timeout(TIMEOUT):
            ready = json.loads(await process.stdout.readline())
        yield Plane(process.pid, port, door, ready["workers"])
    finally:
        assert process.stdin is not None  # noqa: S101 (a pipe was asked for)
        process.stdin.close()
        try:
            async with asyncio.timeout(TIMEOUT):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


class Follower:
    """A WebSocket client that does almost nothing: it reads text messages, and answers pings."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, plane: Plane, uid: str) -> Follower:
        """Follow a worker from its first event on."""
        reader, writer = await asyncio.open_connection("127.0.0.1", plane.port)
        lines = (
            f"GET /v1/workers/{uid}/sdk-events/stream?after_id=0 HTTP/1.1",
            f"Host: 127.0.0.1:{plane.port}",
            f"Authorization: Bearer {KEY}",
            "Upgrade: websocket",
            "Connection: Upgrade",
            "Sec-WebSocket-Version: 13",
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        )
        writer.write("\r\n".join([*lines, "", ""]).encode())
        head = await reader.readuntil(b"\r\n\r\n")
        if b" 101 " not in head:
            raise RuntimeError(head.decode())
        return cls(reader, writer)

    async def next(self) -> dict[str, Any]:
        """The next event."""
        while True:
            kind, size = await self._reader.readexactly(2)
            if size >= 126:
                size = int.from_bytes(await self._reader.readexactly(2 if size == 126 else 8))
            data = await self._reader.readexactly(size)
            if kind == 0x81:
                return json.loads(data)
            if kind == 0x89:  # a pong is masked, here with zeros
                self._writer.write(bytes((0x8A, 0x80 | size)) + bytes(4) + data)
            elif kind == 0x88:
                raise RuntimeError(f"closed: {data[2:].decode()}")

    def close(self) -> None:
        """Close the connection."""
        self._writer.close()


# ── one at a time ───────────────────────────────────────────────────────────────────────────────────────────


async def _latency(sheet: Sheet, plan: Plan, plane: Plane, core: NatsClient) -> None:
    stream = core.jetstream()
    await stream.add_stream(plain_stream())
    heard: asyncio.Queue[float] = asyncio.Queue()

    def hear(_: Msg) -> None:
        heard.put_nowait(time.perf_counter())

    subscription = await follow(stream, PLAIN, PLAIN, hear)
    uid = plane.workers[0]
    payload = json.dumps({"type": "text", "text": TEXT}).encode()
    found: dict[str, list[float]] = {"raw": [], "event": []}
    follower = await Follower.open(plane, uid)
    async with plane.sidecar(uid) as sidecar:
        first = 1
        for number in range(plan.rounds + 1):  # the first one warms up
            times: dict[str, list[float]] = {"raw": [], "event": []}
            for _ in range(plan.singles):
                begun = time.perf_counter()
                await stream.publish(PLAIN, payload)
                times["raw"].append(await heard.get() - begun)
                body = {"run": "r", "first": first, "events": [{"type": "text", "text": TEXT}]}
                begun = time.perf_counter()
                posting = asyncio.ensure_future(
                    sidecar.call("POST", f"/v1/workers/{uid}/sdk-events", body)
                )
                await follower.next()
                times["event"].append(time.perf_counter() - begun)
                await posting
                first += 1
            if number:
                for name, values in times.items():
                    found[name].append(percentile(values, 0.5) * 1000)
    await subscription.unsubscribe()
    follower.close()
    for name, values in found.items():
        sheet.add(f"{name}: p50", values, "ms")
    sheet.compare("event/raw, p50", found["event"], found["raw"])


# ── many workers ────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Many:
    """What many workers have made, and what came of it."""

    made: int = 0
    came: int = 0
    lost: int = 0
    reports: int = 0
    delays: list[float] = field(default_factory=list)


async def _many(sheet: Sheet, plan: Plan, plane: Plane) -> None:
    found = Many()
    resident: list[int] = []
    counted = round(plan.seconds / INTERVAL)
    begun, spent = time.perf_counter(), processor_time(plane.pid)

    async def watch() -> None:
        for _ in range(5):
            await asyncio.sleep(plan.seconds / 5)
            resident.append(memory([plane.pid]).rss)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(watch())
        for uid in plane.workers:
            tasks.create_task(make_events(plane, uid, counted, found))
            tasks.create_task(_client(plane, uid, counted, found))
    took = time.perf_counter() - begun
    sheet.add("many: events that came", [found.came / took], "/s")
    sheet.add("many: events of a report", [found.made / found.reports], "")
    sheet.add("many: lost", [found.made - found.came + found.lost], "")
    sheet.add("many: delay p50", [percentile(found.delays, 0.5) * 1000], "ms")
    sheet.add("many: delay p99", [percentile(found.delays, 0.99) * 1000], "ms")
    sheet.add(
        "many: control plane, processor", [(processor_time(plane.pid) - spent) / took * 100], "%"
    )
    sheet.add("many: control plane, memory", [resident[-1] / MIB], "MiB")
    sheet.add("many: growth", [(resident[-1] - resident[0]) / MIB], "MiB")


async def make_events(plane: Plane, uid: str, count: int, found: Many) -> None:
    """Make `count` events, one each `INTERVAL`; report what has gathered."""
    run, first = f"many-{os.getpid()}", 1
    begun = time.perf_counter()
    async with plane.sidecar(uid) as sidecar:
        while first <= count:
            due = min(count, math.floor((time.perf_counter() - begun) / INTERVAL))
            if due < first:
                await asyncio.sleep(begun + first * INTERVAL - time.perf_counter())
                continue
            last = min(due, first + MAX_EVENTS - 1)
            events = [
                {"type": "text", "text": TEXT, "n": number, "made": begun + number * INTERVAL}
                for number in range(first, last + 1)
            ]
            body = {"run": run, "first": first, "events": events}
            await sidecar.call("POST", f"/v1/workers/{uid}/sdk-events", body)
            found.made += len(events)
            found.reports += 1
            first = last + 1


async def _client(plane: Plane, uid: str, count: int, found: Many) -> None:
    follower = await Follower.open(plane, uid)
    number = 0
    while number < count:
        async with asyncio.timeout(TIMEOUT):
            event = await follower.next()
        if "n" not in event:
            continue  # of the measurement before
        number += 1
        found.came += 1
        found.lost += event["n"] != number
        found.delays.append(time.perf_counter() - event["made"])
    follower.close()
