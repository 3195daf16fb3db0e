"""The bus through the gateway beside the bus alone: latency, rates, processor time, many workers at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_hex

from benchmarks.doors import processes
from benchmarks.doors.processes import PROJECT, Child, child
from benchmarks.doors.wire import Place
from benchmarks.processes import KIB, memory, processor_time
from benchmarks.report import Sheet
from benchmarks.room import scratch_folder
from benchmarks.spread import percentile
from postroom.bus.embedded import EmbeddedServer
from postroom.bus.nats import NatsAdmin, NatsBus, ensure_all
from postroom.bus.server_config import ServerConfig
from postroom.identity.trust import Trust
from postroom.protocol.ids import CONTROL_PLANE
from postroom.protocol.streams import agent_consumer

SIZE = 256
LARGE = 900_000
CROWD = 200
PASSES = 4
"""Times that a request and its answer pass the gateway, with both parties behind it."""

DIRECT, THROUGH = 0, 1
TITLES = ("direct", "through")


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is done in a round."""

    rounds: int
    idle: int
    busy: int
    one_way: int
    stored: int
    large: int
    crowds: int


FULL = Plan(rounds=7, idle=1000, busy=20_000, one_way=60_000, stored=8_000, large=100, crowds=5)
QUICK = Plan(rounds=1, idle=50, busy=1000, one_way=6400, stored=1000, large=8, crowds=1)


@dataclass
class Found:
    """Values of each round, by mode and measure."""

    values: dict[tuple[int, str], list[float]] = field(default_factory=dict)

    def add(self, mode: int, measure: str, value: float) -> None:
        """Note a value of this round."""
        self.values.setdefault((mode, measure), []).append(value)

    def of(self, mode: int, measure: str) -> list[float]:
        """The values of all rounds."""
        return self.values[mode, measure]


def run(sheet: Sheet, *, quick: bool) -> None:
    """Measure; takes about two minutes."""
    with scratch_folder() as scratch:
        asyncio.run(_measure(sheet, scratch, QUICK if quick else FULL))


async def _measure(sheet: Sheet, scratch: Path, plan: Plan) -> None:
    async with _bus(scratch) as (server, trust, admin):
        askers, responders = _pair(), _pair()
        crowd = [(token_hex(16), token_hex(16)) for _ in range(CROWD)]
        doors = scratch / "doors"
        doors.mkdir(mode=0o700)

        def place(known: tuple[str, str], mode: int) -> Place:
            uid, token = known
            credential = trust.mint_agent(
                uid, (PROJECT,), lifetime=3600, now=time.time(), proxied=mode == THROUGH
            )
            door = str(doors / f"{uid}.sock") if mode == THROUGH else ""
            return Place(uid, credential, server.url, door, token)

        for uid, _ in askers:
            await admin.ensure_consumer(agent_consumer("INBOX", uid))
        with ExitStack() as stack:
            arguments = (str(doors), str(scratch / "audit.jsonl"), server.url)
            known = (*askers, *responders, *crowd)
            gateway = stack.enter_context(
                child(processes.gateway, *arguments, trust.proxy_key.seed, known)
            )
            places = [place(each, mode) for mode, each in enumerate(responders)]
            stack.enter_context(child(processes.responder, places))
            places = [place(each, mode) for mode, each in enumerate(askers)]
            asker = stack.enter_context(child(processes.asker, places))
            load = _Load(gateway, asker, [uid for uid, _ in askers], [uid for uid, _ in responders])
            found = Found()
            await _rounds(load, admin, plan, found)
            _probe(load, plan, sheet)
            many = stack.enter_context(child(processes.crowd))
            for _ in range(plan.crowds):
                for mode in (DIRECT, THROUGH):
                    _crowd(gateway, many, [place(each, mode) for each in crowd], mode, found)
                    await admin.purge("INBOX")
            if alerts := gateway.ask("alerts"):
                raise RuntimeError(f"the gateway complains: {alerts}")
    _tell(sheet, found)


def _pair() -> list[tuple[str, str]]:
    return [(token_hex(16), token_hex(16)) for _ in TITLES]


@asynccontextmanager
async def _bus(scratch: Path) -> AsyncGenerator[tuple[EmbeddedServer, Trust, NatsAdmin]]:
    """A server with every stream, in memory: what is measured is the way there."""
    trust = Trust.load_or_create(scratch / "keys")
    config = ServerConfig(
        folder=scratch / "nats",
        host="127.0.0.1",
        port=0,
        operator_jwt=trust.operator_jwt,
        system_account=trust.system_account,
        preload=trust.account_jwts(),
        proxies=(trust.proxy_key.public,),
        memory=True,
    )
    server = await EmbeddedServer.start(config)
    try:
        credential = trust.core_credential()
        core = await NatsBus.connect(
            server.url, uid=CONTROL_PLANE, jwt=lambda: credential.jwt, sign=credential.sign
        )
        try:
            admin = NatsAdmin(core, memory=True)
            await ensure_all(admin)
            yield server, trust, admin
        finally:
            await core.close()
    finally:
        await server.stop()


@dataclass(frozen=True, slots=True)
class _Load:
    gateway: Child
    asker: Child
    askers: list[str]
    responders: list[str]

    def requests(self, mode: int, **named: int) -> tuple[float, list[float]]:
        return self.asker.ask(mode, "requests", (self.responders[mode],), named)


async def _rounds(load: _Load, admin: NatsAdmin, plan: Plan, found: Found) -> None:
    for mode in (DIRECT, THROUGH):  # warm
        load.requests(mode, total=max(100, plan.busy // 10), flight=64, size=SIZE)
    for number in range(plan.rounds):
        modes = (DIRECT, THROUGH) if number % 2 == 0 else (THROUGH, DIRECT)
        for mode in modes:
            _, took = load.requests(mode, total=plan.idle, flight=1, size=SIZE)
            found.add(mode, "p50", 1e6 * percentile(took, 0.5))
            found.add(mode, "p99", 1e6 * percentile(took, 0.99))
        for mode in modes:
            _timed(load, found, mode, "busy", plan.busy, PASSES, "requests", flight=64)
        for mode in modes:
            _timed(load, found, mode, "one way", plan.one_way // 64 * 64, 1, "one_way")
        for mode in modes:
            _timed(load, found, mode, "stored", plan.stored, 2, "stored", window=256)
        for mode in modes:  # of the messages that the other one has stored
            _timed(load, found, mode, "pulled", plan.stored, 2, "pulled")
        for mode in modes:
            seconds, _ = load.requests(mode, total=plan.large, flight=4, size=LARGE)
            found.add(mode, "large", 2 * plan.large * LARGE / seconds / 1e6)
        await admin.purge("INBOX")


def _timed(
    load: _Load,
    found: Found,
    mode: int,
    measure: str,
    total: int,
    frames: int,
    work: str,
    **named: int,
) -> None:
    """One work; its rate, and through the gateway what that spends on each of its messages."""
    arguments: tuple[str, ...] = (load.responders[mode],)
    if work == "one_way":
        arguments = (token_hex(16),)
    elif work == "stored":
        arguments = (load.askers[1 - mode],)
    elif work == "pulled":
        arguments = ()
    if work != "pulled":
        named["size"] = SIZE
    before = processor_time(load.gateway.pid)
    answer = load.asker.ask(mode, work, arguments, {**named, "total": total})
    spent = processor_time(load.gateway.pid) - before
    found.add(mode, measure, total / (answer[0] if work == "requests" else answer))
    if mode == THROUGH:
        found.add(mode, f"{measure} CPU", 1e6 * spent / (total * frames))


def _probe(load: _Load, plan: Plan, sheet: Sheet) -> None:
    """Where the time goes, with 64 in flight."""
    load.gateway.ask("probe")
    user, system, _ = load.gateway.ask("spent")
    load.requests(THROUGH, total=plan.busy, flight=64, size=SIZE)
    later_user, later_system, probe = load.gateway.ask("spent")
    messages = plan.busy * PASSES
    whole = 1e6 * (later_user - user + later_system - system) / messages
    recording, sending, reading = (
        1e6 * each / messages for each in (probe.recording, probe.sending, probe.reading)
    )
    judging = reading - recording - sending
    rest = whole - reading
    share = 100 * (later_system - system) / (later_user - user + later_system - system or 1)
    sheet.note(
        f"where the time goes, 64 in flight, µs per message of {whole:.1f} of processor time: reading, judging and "
        f"making the records {judging:.1f}, writing them {recording:.1f}, sending on {sending:.1f}, event loop and "
        f"receiving {max(rest, 0):.1f}; {messages / probe.pieces:.0f} messages a piece; "
        f"{share:.0f} % in the kernel."
    )


def _crowd(gateway: Child, many: Child, places: list[Place], mode: int, found: Found) -> None:
    before, spent = memory([gateway.pid]).rss, processor_time(gateway.pid)
    entered, sent = many.ask(places)
    if mode == THROUGH:
        grown = memory([gateway.pid]).rss - before
        found.add(mode, "crowd RSS", grown / CROWD / KIB)
        found.add(mode, "crowd CPU", 1e3 * (processor_time(gateway.pid) - spent) / CROWD)
    found.add(mode, "crowd in", 1e3 * entered)
    found.add(mode, "crowd sent", 1e3 * sent)
    many.ask([])


def _tell(sheet: Sheet, found: Found) -> None:
    for measure, title, unit in (
        ("p50", "request, 1 in flight, p50", "µs"),
        ("p99", "request, 1 in flight, p99", "µs"),
        ("busy", "request, 64 in flight", "/s"),
        ("one way", "publish", "/s"),
        ("stored", "JetStream publish, window 256", "/s"),
        ("pulled", "pull and ack", "/s"),
        ("large", "request, 900 kB, 4 in flight", "MB/s"),
        ("crowd in", f"{CROWD} workers at once, until all are in", "ms"),
        ("crowd sent", f"{CROWD} workers at once, until all have sent", "ms"),
    ):
        for mode, name in enumerate(TITLES):
            sheet.add(f"{title}: {name}", found.of(mode, measure), unit)
    both = zip(found.of(THROUGH, "p50"), found.of(DIRECT, "p50"), strict=True)
    sheet.add("added p50 per pass", [(one - other) / PASSES for one, other in both], "µs")
    for measure, title in (
        ("busy CPU", "64 in flight"),
        ("one way CPU", "publish"),
        ("stored CPU", "JetStream publish"),
        ("pulled CPU", "pull and ack"),
    ):
        sheet.add(f"gateway, CPU per message: {title}", found.of(THROUGH, measure), "µs")
    sheet.add("gateway, CPU per connection", found.of(THROUGH, "crowd CPU"), "ms")
    grown = found.of(THROUGH, "crowd RSS")
    sheet.add("gateway, RSS per connection", grown[:1], "KiB")
    for measure, title in (
        ("busy", "request, 64 in flight"),
        ("one way", "publish"),
        ("stored", "JetStream publish"),
        ("pulled", "pull and ack"),
        ("large", "900 kB"),
    ):
        sheet.compare(
            f"through / direct, {title}", found.of(THROUGH, measure), found.of(DIRECT, measure)
        )
    for text in NOTES:
        sheet.note(text)


NOTES = (
    f"{SIZE}-byte payloads; both parties behind the gateway: a request and its answer pass it {PASSES} times.",
    "The parties, the gateway and nats-server are processes of their own and share the cores.",
    "The gateway is as in the control plane: plain asyncio, each message recorded before it passes, fsync each second.",
    "Rates are counted and never reached.",
    "The parties are lean on purpose (a protocol of asyncio, no library): direct is as fast as it can be.",
    "JetStream keeps its messages in memory.",
    "CPU: user and system time of the gateway's process, divided by the messages that it recorded.",
    "RSS per connection: growth of the gateway's process when 200 workers connect for the first time.",
)
