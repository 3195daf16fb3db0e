"""`message/send` over HTTP, side by side: an agent of a post room, and the plain SDK's server with its two stores."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter

from nats.aio.msg import Msg
from nats.js import JetStreamContext

from benchmarks.a2a.children import START_TIMEOUT, Child
from benchmarks.a2a.environment import MAIN, Environments
from benchmarks.a2a.peers.load import CALL_TIMEOUT, Turn
from benchmarks.buses import TIMEOUT, Buses, follow, plain_stream
from benchmarks.connection import Connection
from benchmarks.processes import Sandboxed, processor_time
from benchmarks.report import Sheet
from benchmarks.requesters import FOLLOWED, Floor
from benchmarks.room import PostRoom, post_room, scratch_folder
from benchmarks.spread import percentile
from postroom.protocol.shapes import Worker

WORKER = Path(__file__).resolve().parent / "worker" / "instant.toml"

MEMORY = "memory"
"""What `fronts.sdk` is told to keep tasks in memory."""

OURS, SQL, MEM = "post room", "SDK, SQLite", "SDK, memory"
AT_ONCE = (1, 16, 64)

LAG = "postroom_fold_lag_seconds"
"""The metric that says how old a record was when it was committed last."""

PAUSE = 0.02
"""Seconds between two tasks whose wake-up is measured: what follows from the first is done then."""

NOTES = (
    "SendMessage that waits for its task's end, JSON-RPC on kept-alive connections; one bare client for all.",
    "The executor completes each task at once. The SDK's runs in the server's process.",
    "Ours is a worker in a sandbox: each task and each answer goes over the bus, the gateway and its audit log.",
    "post room: the request and each state of a task are on disk (fsync) before anybody is told.",
    "The worker of the post room runs one task at a time, however many wait.",
    "SDK, SQLite: DatabaseTaskStore on aiosqlite with SQLite's defaults. SDK, memory: nothing is stored.",
    "All run on uvloop, in one environment. CPU: of all processes of a contender per task, without the client.",
    "wake-up: from JetStream's timestamp of the `completed` record until the caller has the answer, one at a time.",
    "raw deliver: from a publish until a waiting push consumer has the record, which is on disk.",
    "A request alone: GET /livez and its answer, which a wake-up over HTTP has half of.",
    "to its commit: from that timestamp until the control plane has folded the task's last record, as /metrics says.",
    "Before each of these the machine rests for 20 ms, but for the publishes one after the other, whose code is warm.",
    "The rounds of all contenders alternate, in another order each time.",
)


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured; `seconds` is for one turn of one contender."""

    rounds: int
    seconds: float
    wakeups: int


FULL, QUICK = Plan(5, 4.0, 150), Plan(1, 1.0, 20)


@dataclass
class Contender:
    """A server, and the client that calls it.

    Attributes:
        pids: the processes of the server, by name.
        failed: why it takes part no more, by the number of calls at a time.
    """

    name: str
    client: Child
    pids: dict[str, list[int]]
    failed: dict[int, str] = field(default_factory=dict)

    async def turn(
        self, concurrency: int, seconds: float, limit: int = 0, pause: float = 0.0
    ) -> tuple[Turn, dict[str, float], dict[str, float]]:
        """A turn: what came of it, milliseconds of processor time per task by process, when each task was told."""
        before = self._spent()
        order = {"concurrency": concurrency, "seconds": seconds, "limit": limit, "pause": pause}
        await self.client.tell(order)
        said = await self.client.hear(seconds + 2 * CALL_TIMEOUT)
        done = Turn(**said["turn"])
        spent = self._spent()
        each = {name: 1000 * (spent[name] - before[name]) / done.count for name in spent}
        return done, each, said["told"]

    def _spent(self) -> dict[str, float]:
        return {name: sum(map(processor_time, pids)) for name, pids in self.pids.items()}


def run(sheet: Sheet, *, quick: bool) -> None:
    """Measure; takes about five minutes, and once another for the SDK's environment."""
    environments = Environments()
    environments.prepare_sql()
    python = environments.python(MAIN)
    with post_room(str(python)) as room, scratch_folder() as folder:
        asyncio.run(_measure(sheet, room, folder, python, QUICK if quick else FULL))
    for text in NOTES:
        sheet.note(text)


async def _measure(sheet: Sheet, room: PostRoom, folder: Path, python: Path, plan: Plan) -> None:
    async with AsyncExitStack() as stack:
        worker = await asyncio.to_thread(room.idle_worker, "instant", WORKER)
        ours = await stack.enter_async_context(_ours(room, worker, folder))
        contenders = [ours]
        for name, place in ((SQL, str(folder / "tasks.db")), (MEM, MEMORY)):
            contenders.append(await stack.enter_async_context(_sdk(name, place, python, folder)))
        for each in contenders:  # connections, caches and code paths are warm then
            await each.turn(16, 1.0)
        found = _Found()
        for number in range(plan.rounds):
            for concurrency in AT_ONCE:
                turned = contenders[number % 3 :] + contenders[: number % 3]
                for each in turned:
                    await found.keep(each, concurrency, plan.seconds)
        found.tell(sheet)
        await _wake(sheet, stack, room, ours, plan)


@asynccontextmanager
async def _sdk(name: str, place: str, python: Path, folder: Path) -> AsyncGenerator[Contender]:
    log = folder / f"{'memory' if place == MEMORY else 'sql'}.log"
    command = (python, "-m", "benchmarks.fronts.sdk", place)
    server = await Child.start(command, log)
    try:
        url = await server.line(START_TIMEOUT)
        async with _client(url, "", folder / f"client-{log.name}") as client:
            yield Contender(name, client, {"server": [server.pid]})
    finally:
        await server.end()


@asynccontextmanager
async def _ours(room: PostRoom, worker: Worker, folder: Path) -> AsyncGenerator[Contender]:
    server, inside = room.server, Sandboxed.below(worker["pid"])
    pids = {
        "control plane": [server["pid"]],
        "nats-server": [server["nats_pid"]],
        "sidecar": [inside.sidecar],
        "agent": inside.agent,
    }
    url = f"{server['url']}/a2a/{worker['uid']}"
    async with _client(url, server["token"], folder / "client-ours.log") as client:
        yield Contender(OURS, client, pids)


@asynccontextmanager
async def _client(url: str, token: str, log: Path) -> AsyncGenerator[Child]:
    client = await Child.start((sys.executable, "-m", "benchmarks.fronts.client", url, token), log)
    try:
        yield client
    finally:
        await client.end()


class _Found:
    """What the rounds have found, by contender and calls at a time."""

    def __init__(self) -> None:
        self._turns: dict[tuple[str, int], list[Turn]] = {}
        self._costs: dict[tuple[str, int], list[dict[str, float]]] = {}

    async def keep(self, each: Contender, concurrency: int, seconds: float) -> None:
        """A turn of a contender."""
        turn, cost, _ = await each.turn(concurrency, seconds)
        self._turns.setdefault((each.name, concurrency), []).append(turn)
        self._costs.setdefault((each.name, concurrency), []).append(cost)

    def tell(self, sheet: Sheet) -> None:
        """Write it down."""
        for (name, concurrency), turns in self._turns.items():
            title = f"{name} x{concurrency}"
            costs = self._costs[name, concurrency]
            sheet.add(f"{title}: rate", [turn.rate for turn in turns], "/s")
            sheet.add(f"{title}: p50", [turn.p50 for turn in turns], "ms")
            sheet.add(f"{title}: p99", [turn.p99 for turn in turns], "ms")
            sheet.add(f"{title}: CPU", [sum(cost.values()) for cost in costs], "ms")
        for part in self._costs[OURS, AT_ONCE[1]][0]:
            costs = self._costs[OURS, AT_ONCE[1]]
            sheet.add(f"{OURS} x{AT_ONCE[1]}, CPU: {part}", [cost[part] for cost in costs], "ms")
        for other in (SQL, MEM):
            for concurrency in AT_ONCE:
                sheet.compare(
                    f"rate, {OURS} / {other}, x{concurrency}",
                    self._rates(OURS, concurrency),
                    self._rates(other, concurrency),
                )

    def _rates(self, name: str, concurrency: int) -> Sequence[float]:
        return [turn.rate for turn in self._turns[name, concurrency]]


async def _wake(
    sheet: Sheet, stack: AsyncExitStack, room: PostRoom, ours: Contender, plan: Plan
) -> None:
    """From a completed task's record to its caller, beside a publish of one record to its consumer."""
    stream: JetStreamContext = (await Buses(stack, room).core()).jetstream(timeout=TIMEOUT)
    await stream.add_stream(plain_stream(FOLLOWED))
    floor = Floor(stream)
    stored: dict[str, float] = {}

    def note(record: Msg) -> None:
        stored[record.subject.split(".")[3]] = record.metadata.timestamp.timestamp()

    await follow(stream, FOLLOWED, FOLLOWED, floor.delivered)
    await follow(stream, "TASKS", "worker.*.tasks.*.completed", note)
    server = room.server
    connection = Connection(server["url"], server["token"])
    alone = _Alone(await stack.enter_async_context(connection), ours, floor, plan.wakeups)
    wakes: list[float] = []
    hot: list[float] = []
    raws: list[float] = []
    asks: list[float] = []
    commits: list[float] = []
    for _ in range(plan.rounds):
        await connection.open()
        hot.append(await alone.delivered(0.0))
        raws.append(await alone.delivered(PAUSE))
        _, _, told = await ours.turn(1, 60.0, plan.wakeups, PAUSE)
        async with asyncio.timeout(TIMEOUT):
            while not told.keys() <= stored.keys():  # noqa: ASYNC110 (they come one by one)
                await asyncio.sleep(0.01)
        wakes.append(percentile([1000 * (at - stored[task]) for task, at in told.items()], 0.5))
        asks.append(await alone.asked())
        commits.append(await alone.committed())
    sheet.add("completed record to the caller's answer: p50", wakes, "ms")
    sheet.add("raw publish to deliver: p50", raws, "ms")
    sheet.add("raw publish to deliver, one after the other: p50", hot, "ms")
    sheet.add("a request over HTTP alone: p50", asks, "ms")
    sheet.add("a record to its commit in the control plane: p50", commits, "ms")
    sheet.compare("completion to wake-up / raw publish to deliver, p50", wakes, raws)
    sheet.compare("completion to wake-up / raw one after the other, p50", wakes, hot)
    sheet.compare("record to commit / raw publish to deliver, p50", commits, raws)


@dataclass(frozen=True, slots=True)
class _Alone:
    """What a wake-up is made of, each alone, `count` times with a rest before; the medians in milliseconds."""

    connection: Connection
    ours: Contender
    floor: Floor
    count: int

    async def delivered(self, rest: float) -> float:
        """A publish, until its consumer has the record; with so many seconds of rest before it."""
        took = []
        for _ in range(self.count):
            await asyncio.sleep(rest)
            took.append(await self.floor.deliver())
        return percentile(took, 0.5)

    async def asked(self) -> float:
        """A request and its answer."""
        took = []
        for _ in range(self.count):
            await asyncio.sleep(PAUSE)
            begin = perf_counter()
            await self.connection.call("GET", "/livez")
            took.append(1000 * (perf_counter() - begin))
        return percentile(took, 0.5)

    async def committed(self) -> float:
        """A record of the control plane's streams, until it is folded."""
        took = []
        for _ in range(self.count):
            await self.ours.turn(1, 60.0, 1)
            await asyncio.sleep(PAUSE)  # the last record of the task is behind its answer
            text = (await self.connection.call("GET", "/metrics")).decode()
            took.append(1000 * float(text.partition(f"\n{LAG}{{")[2].partition("} ")[2].split()[0]))
        return percentile(took, 0.5)
