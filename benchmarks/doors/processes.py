"""The processes beside the server: the gateway in one of its own, a responder, and one that asks."""

from __future__ import annotations

import asyncio
import multiprocessing
import resource
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks.doors import works
from benchmarks.doors.wire import Place, Wire
from postroom.audit import AuditLog
from postroom.bus.address import BusAddress
from postroom.gateway.nats.proxy import NatsProxy
from postroom.gateway.port import DoorSpec, Rates
from postroom.gateway.server import Gateway
from postroom.identity.nkeys import KeyPair
from postroom.identity.tokens import digest
from postroom.protocol.alerts import Alert

UNBOUND = Rates(messages=10**9, bytes=10**12, stored_bytes=10**15, records=10**9)
"""Counted as ever, and never reached."""

PROJECT = "main"
START_TIMEOUT = 60.0


class Child:
    """A process that answers one question at a time."""

    def __init__(self, process: Any, pipe: Connection) -> None:
        self._process = process
        self._pipe = pipe
        self.pid = int(process.pid)

    def ask(self, *question: Any, timeout: float = START_TIMEOUT) -> Any:
        """What it answers.

        Raises:
            RuntimeError: it failed, or does not answer.
        """
        self._pipe.send(question)
        return self.answer(timeout)

    def answer(self, timeout: float = START_TIMEOUT) -> Any:
        """What it says next."""
        if not self._pipe.poll(timeout):
            raise RuntimeError("a process of the benchmark does not answer")
        answer = self._pipe.recv()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def end(self) -> None:
        """End it."""
        self._pipe.close()  # it reads the end
        self._process.join(5)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


@contextmanager
def child(main: Callable[..., None], *arguments: Any) -> Generator[Child]:
    """A process that runs `main(pipe, *arguments)`, once it has said that it is ready."""
    context = multiprocessing.get_context("spawn")
    near, far = context.Pipe()
    process = context.Process(target=main, args=(far, *arguments), daemon=True)
    process.start()
    far.close()
    one = Child(process, near)
    try:
        one.answer()
        yield one
    finally:
        one.end()


@dataclass(slots=True)
class Probe:
    """Where the gateway's processor time goes: seconds, and how often."""

    reading: float = 0.0
    recording: float = 0.0
    sending: float = 0.0
    pieces: int = 0


def gateway(
    pipe: Connection,
    folder: str,
    log: str,
    url: str,
    seed: str,
    doors: Sequence[tuple[str, str]],
) -> None:
    """The gateway as it is in the control plane: plain asyncio, its log on the disk."""
    asyncio.run(_gateway(pipe, Path(folder), Path(log), url, seed, doors))


async def _gateway(
    pipe: Connection,
    folder: Path,
    log: Path,
    url: str,
    seed: str,
    doors: Sequence[tuple[str, str]],
) -> None:
    key = KeyPair.from_seed(seed)
    audit = AuditLog(log, files=1)
    alerts: list[str] = []

    async def note(org: str, alert: Alert) -> None:
        alerts.append(f"{org} {alert.kind} {alert.text} {alert.who}")

    proxies = {"nats": NatsProxy(lambda: BusAddress((url,)), key.sign)}
    served = Gateway(folder, proxies, audit, alert=note)
    for uid, token in doors:
        await served.open_door(DoorSpec(uid, "default", digest(token), (PROJECT,), rates=UNBOUND))
    probe = Probe()

    def answer(question: tuple[Any, ...]) -> Any:
        if question[0] == "probe":
            _insert(probe, audit)
        elif question[0] == "spent":
            used = resource.getrusage(resource.RUSAGE_SELF)
            return used.ru_utime, used.ru_stime, probe
        return alerts

    tending = asyncio.create_task(audit.run())
    try:
        await _serve(pipe, answer)
        await served.close()
    finally:
        tending.cancel()
        audit.close()


def _insert(probe: Probe, audit: AuditLog) -> None:
    """Time what one piece is read, recorded and sent in; a piece has many messages, so it hardly disturbs."""
    from postroom.gateway.nats.proxy import ServerSide, WorkerSide
    from postroom.gateway.nats.side import Side

    clock = time.thread_time

    def timed(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def measured(*arguments: Any) -> Any:
            begin = clock()
            try:
                return function(*arguments)
            finally:
                setattr(probe, name, getattr(probe, name) + clock() - begin)
                probe.pieces += name == "reading"

        return measured

    audit.write = timed("recording", audit.write)
    for side, name, measure in (
        (Side, "pass_on", "sending"),
        (ServerSide, "data_received", "reading"),
        (WorkerSide, "data_received", "reading"),
    ):
        setattr(side, name, timed(measure, getattr(side, name)))


async def _serve(pipe: Connection, answer: Callable[[tuple[Any, ...]], Any]) -> None:
    """Answer until the other side has hung up."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()

    def readable() -> None:
        try:
            pipe.send(answer(pipe.recv()))
        except (EOFError, OSError):
            loop.remove_reader(pipe.fileno())
            ended.set_result(None)

    pipe.send("ready")
    loop.add_reader(pipe.fileno(), readable)
    await ended


def responder(pipe: Connection, places: Sequence[Place]) -> None:
    """Answers every request with its payload, at each of `places`."""
    asyncio.run(_responder(pipe, places))


async def _responder(pipe: Connection, places: Sequence[Place]) -> None:
    for place in places:
        await _respond(place)
    await _serve(pipe, lambda _: None)


async def _respond(place: Place) -> None:
    wire = await Wire.connect(place)

    def on(_subject: bytes, reply: bytes, body: bytes) -> None:
        if reply:
            wire.write(b"PUB %b %d\r\n%b\r\n" % (reply, len(body), body))

    wire.on = on
    wire.write(b"SUB worker.%b.rpc.> 1\r\n" % place.uid.encode())
    await wire.ping()


def asker(pipe: Connection, places: Sequence[Place]) -> None:
    """Does works at each of `places`, one at a time, when it is told to: index, name, arguments."""
    with asyncio.Runner() as runner:
        wires = [runner.run(_enter(place)) for place in places]
        pipe.send("ready")
        while True:
            try:
                index, name, arguments, named = pipe.recv()
            except EOFError:
                return
            work = getattr(works, name)(wires[index], places[index].uid, *arguments, **named)
            try:
                pipe.send(runner.run(work))
            except Exception as error:  # noqa: BLE001 (told to who asked)
                pipe.send(RuntimeError(f"{name}: {error!r}"))


async def _enter(place: Place) -> Wire:
    wire = await Wire.connect(place)
    wire.write(b"SUB _I.%b.> 1\r\n" % place.uid.encode())
    await wire.ping()
    return wire


def crowd(pipe: Connection) -> None:
    """Lets many connect at once: asked with their places; they hang up at the next question."""
    with asyncio.Runner() as runner:
        pipe.send("ready")
        wires: list[Wire] = []
        while True:
            try:
                (places,) = pipe.recv()
            except EOFError:
                return
            runner.run(_leave(wires))
            try:
                entered, sent, wires = runner.run(works.crowd(places)) if places else (0, 0, [])
                pipe.send((entered, sent))
            except Exception as error:  # noqa: BLE001 (told to who asked)
                pipe.send(RuntimeError(f"crowd: {error!r}"))


async def _leave(wires: list[Wire]) -> None:
    for wire in wires:
        wire.close()
    if wires:
        await asyncio.wait({wire.lost for wire in wires}, timeout=works.TIMEOUT)
