"""The comparison itself: all contenders are up all the time and take turns, so that noise hits all alike."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks.a2a.children import START_TIMEOUT, Pair, PeerFailed, nats_server, peer
from benchmarks.a2a.contenders import CONTENDERS, Contender, Work
from benchmarks.a2a.environment import MAIN, SLIM, Environments
from benchmarks.a2a.findings import Findings
from benchmarks.a2a.peers.kinds import Options
from benchmarks.a2a.peers.load import Order
from benchmarks.processes import MIB, memory
from benchmarks.report import Sheet


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured.

    Attributes:
        works: in the order in which they are done.
        rounds: of turns.
        seconds: of one turn.
        warm_up: seconds of each turn before the first.
        many: calls before memory is looked at again.
        late: number of the durable call that is compared with the first.
    """

    works: tuple[Work, ...]
    rounds: int
    seconds: float
    warm_up: float
    many: int
    late: int


_ALL = (1, 16, 64)

FULL = Plan(
    (
        *(Work("message", 200, each) for each in _ALL),
        *(Work("task", 200, each) for each in (16, 64)),
        *(Work("message", 16_000, each) for each in (1, 16)),
        Work("task", 16_000, 16),
        *(Work("stream", 200, each) for each in _ALL),
    ),
    rounds=5,
    seconds=0.35,
    warm_up=0.3,
    many=100_000,
    late=10_000,
)
QUICK = Plan(
    (
        Work("message", 200, 1),
        Work("message", 200, 16),
        Work("task", 200, 16),
        Work("stream", 200, 1),
    ),
    rounds=1,
    seconds=0.1,
    warm_up=0.03,
    many=5000,
    late=1000,
)

WARM_UP = tuple(Work(name, 200, 4) for name in ("message", "task", "stream"))
"""Connections, caches and code paths are warm then."""

HUNDRED = 100
"""Calls that warm a new pair up; then early ones and late ones, whose means are compared."""

LONG_RUN = 90.0
"""Seconds after which a long run is cut short; its row tells how many calls were made."""

LONG_RUNS = ("nats-ours", "nats-js-ours")
"""Names of the contenders whose memory is looked at."""

LATE = "nats-js-trivial"
"""Name of the contender whose late calls are looked at."""


class Rounds:
    """Runs a plan.

    Attributes:
        left_out: contender's title to the reason why it could not run, or not go on.
    """

    def __init__(self, sheet: Sheet, plan: Plan, environments: Environments, folder: Path) -> None:
        self._sheet = sheet
        self._plan = plan
        self._environments = environments
        self._folder = folder
        self._pairs: dict[Contender, Pair] = {}
        self._buses: dict[str, tuple[str, int]] = {}
        self.findings = Findings()
        self.left_out: dict[str, str] = {}

    async def run(self) -> None:
        """Start all, measure, write down."""
        async with nats_server(self._folder) as nats, AsyncExitStack() as stack:
            self._buses["nats"] = nats
            await self._start(stack)
            for contender in list(self._pairs):
                for work in WARM_UP:
                    await self._turn(contender, work, self._plan.warm_up, keep=False)
            for number in range(self._plan.rounds):
                for work in self._plan.works:
                    for contender in _turned(list(self._pairs), number):
                        await self._turn(contender, work, self._plan.seconds)
            await self._long_runs()
            await self._late_calls()
        self.findings.tell(self._sheet, CONTENDERS, self._plan.works)

    async def _start(self, stack: AsyncExitStack) -> None:
        print(f"a2a: starting {len(CONTENDERS)} contenders ...", flush=True)
        for contender in CONTENDERS:
            reason = self._environments.missing.get(contender.part, "")
            try:
                if reason:
                    raise PeerFailed(reason)
                self._pairs[contender] = await self._pair(stack, contender)
            except PeerFailed as error:
                self._leave_out(contender, error)

    async def _pair(self, stack: AsyncExitStack, contender: Contender) -> Pair:
        if contender.bus == "slim" and "slim" not in self._buses:
            runner = self._environments.runner(SLIM)
            node = await peer(runner, "serve", Options("slim-node", name="node"), self._folder)
            stack.push_async_callback(node.end)
            self._buses["slim"] = (await node.hear(START_TIMEOUT))["address"], node.pid
        bus, pid = self._buses.get(contender.bus, ("", None))
        options = Options(contender.kind, contender.handler, bus, name=contender.name)
        runner = self._environments.runner(contender.environment)
        return await Pair.start(stack, runner, options, self._folder, pid)

    async def _turn(
        self, contender: Contender, work: Work, seconds: float, *, keep: bool = True
    ) -> None:
        if contender not in self._pairs or work.name not in contender.works:
            return
        order = Order(work.name, work.size, work.concurrency, seconds)
        try:
            found = await self._pairs[contender].turn(order)
        except PeerFailed as error:
            self._leave_out(contender, error)
        else:
            if keep:
                self.findings.keep(contender, work, found)

    def _leave_out(self, contender: Contender, error: PeerFailed) -> None:
        print(f"a2a: without {contender.title}: {error}", flush=True)
        self.left_out[contender.title] = str(error)
        self._pairs.pop(contender, None)
        self.findings.forget(contender)

    async def _long_runs(self) -> None:
        for contender, pair in self._pairs.items():
            if contender.name not in LONG_RUNS:
                continue
            pids = {"client": pair.client.pid, "server": pair.server.pid}
            before = {role: memory([pid]).rss for role, pid in pids.items()}
            done, _ = await pair.turn(Order("message", 200, 16, LONG_RUN, self._plan.many))
            title = f"{contender.title}, {done.count} Messages"
            for role, pid in pids.items():
                grown = (memory([pid]).rss - before[role]) / MIB
                self._sheet.add(f"{title}: RSS grown, {role}", [grown], "MiB")

    async def _late_calls(self) -> None:
        """On a new pair, so that its streams and its sessions are as young as they can be."""
        chosen = [each for each in self._pairs if each.name == LATE]
        if not chosen:
            return
        async with AsyncExitStack() as stack:
            bus, pid = self._buses["nats"]
            options = Options(chosen[0].kind, chosen[0].handler, bus, name=f"{LATE}-late")
            runner = self._environments.runner(MAIN)
            pair = await Pair.start(stack, runner, options, self._folder, pid)
            # The first hundred fill caches and connections: they would make any later call look quick.
            await pair.turn(Order("message", 200, 1, 60, HUNDRED))
            early, _ = await pair.turn(Order("message", 200, 1, 60, HUNDRED))
            between = self._plan.late - 2 * HUNDRED - HUNDRED // 2
            await pair.turn(Order("message", 200, 16, 60, between))
            late, _ = await pair.turn(Order("message", 200, 1, 60, HUNDRED))
        self._sheet.add("NATS+JS, calls 101 to 200: mean", [early.mean], "ms")
        self._sheet.add(f"NATS+JS, a hundred around {self._plan.late}: mean", [late.mean], "ms")
        name = f"NATS+JS, call {self._plan.late} / call 101, mean of 100 (<= 1.2)"
        self._sheet.compare(name, [late.mean], [early.mean])


def _turned(contenders: list[Contender], number: int) -> list[Contender]:
    """`contenders` beginning with another one in each round, so that none profits from its place."""
    first = number * len(contenders) // FULL.rounds % max(1, len(contenders))
    return contenders[first:] + contenders[:first]
