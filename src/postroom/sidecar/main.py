"""The sidecar's life: take the configuration, try the wall, connect, run the agent, drain, end."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from postroom import inherited
from postroom.bus.address import BusAddress
from postroom.bus.nats import NatsBus
from postroom.bus.port import Subscription
from postroom.directory.cards import SERVER_SOCKET
from postroom.errors import (
    InvalidInput,
    PostroomError,
    exit_code,
    leaves,
)
from postroom.http.client import HttpClient
from postroom.http.server import HttpServer
from postroom.identity.nkeys import KeyPair
from postroom.observe import get_logger, to_stderr
from postroom.protocol import subjects
from postroom.protocol.alerts import Alert
from postroom.protocol.presence import OUT_OF_MEMORY, WorkerState
from postroom.sidecar.a2a.serving import rpc_caller, rpc_server
from postroom.sidecar.bus import BACKOFF, CredentialRenewal
from postroom.sidecar.compose import Sidecar, compose, shells
from postroom.sidecar.config import ENVIRONMENT, SidecarConfig, load
from postroom.sidecar.control_client import BlobRelay, ControlClient, control_http, direct
from postroom.sidecar.poster import EventPoster
from postroom.sidecar.spool import Spool
from postroom.sidecar.terminal import Terminals
from postroom.sidecar.turns.control import poll
from postroom.sidecar.walls import (
    BREACHED,
    GATEWAY_HOST,
    Connector,
    EgressRelay,
    WallCheck,
    bus_behind,
    by_socket,
    by_tls,
    examine,
    harden,
    streams,
    with_preface,
)
from postroom_a2a.nats.port import Frame

CONNECT_TIMEOUT = 20.0
SETTLE_TIMEOUT = 1.0
"""Seconds for open acknowledgements at the end."""

EVENTS = "events"
"""Name of the folder with events that wait, in the state folder."""

BATCHES = {"PRIORITY": 256, "RECEIPTS": 8, "FEED": 8}
"""Open deliveries of each stream but the inbox. In the priority lane none may wait for another."""

_log = get_logger(__name__)


class SidecarProcess:
    """One run of the sidecar."""

    def __init__(self, config: SidecarConfig, wall: WallCheck) -> None:
        self._config = config
        self._wall = wall
        self._jwt = config.jwt
        self._stop = asyncio.Event()
        self._ports = iter(config.ports)
        self._connector = _connector(config)

    async def run(self) -> int:
        """Run until SIGTERM; returns the exit code.

        Raises:
            PostroomError: the bus is out of reach, or was lost for good.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        async with AsyncExitStack() as stack:
            http = self._control()
            outside = await self._way_out(stack)
            # Events go to the control plane only if the template has a `[sidecar]` table.
            control = ControlClient(http) if http and self._config.interactive else None
            bus = await self._connect()
            stack.push_async_callback(bus.close)
            server = HttpServer(self._port())
            caller = partial(rpc_caller, bus.mailbox, bus.uid)
            blobs = BlobRelay(http) if http else None
            poster = self._poster(control)
            record = poster.record if poster else _nothing
            sidecar = compose(self._config, bus, caller, server.port, blobs, outside, record)
            stack.callback(sidecar.journal.close)
            sidecar.status.sandbox = self._wall.level
            if self._wall.breached:
                return await self._refuse(sidecar, control)
            server.answer_with(sidecar.api.handle)
            server.also_at(self._config.state / SERVER_SOCKET, sidecar.a2a.handle)
            if self._config.a2a_port:
                server.also_on(self._config.a2a_port, sidecar.a2a.handle)
            await stack.enter_async_context(server)
            stack.push_async_callback(sidecar.live.close)
            await stack.enter_async_context(rpc_server(bus.mailbox, bus.uid, sidecar.serving))
            await self._serve(sidecar, bus, control, poster, http)
        return 0

    def _poster(self, control: ControlClient | None) -> EventPoster | None:
        """Posts the worker's events; None where nobody wants them."""
        if control is None:
            return None
        spool = Spool(self._config.state / EVENTS, secrets.token_hex(16))
        return EventPoster(spool, control, self._config.uid)

    def _bus(self) -> BusAddress:
        """The bus's address, through the gateway or direct."""
        config = self._config
        if self._connector is None:
            return BusAddress((config.nats_url,))
        return bus_behind(self._connector, config.token)

    def _control(self) -> HttpClient | None:
        """A client of the control plane, likewise; None where no address is configured."""
        config = self._config
        url = config.control_url
        if self._connector is None:
            return direct(url, config.token) if url else None
        dial = partial(streams, with_preface(self._connector, "http", config.token))
        return control_http(dial, urlsplit(url).netloc or GATEWAY_HOST, config.token)

    def _port(self) -> int:
        """The next port that the sandbox leaves to the sidecar; 0, any, where there is no such list."""
        return next(self._ports, 0)

    async def _way_out(self, stack: AsyncExitStack) -> str:
        """URL of the egress relay; "" if the template allows no host outside."""
        config = self._config
        if not config.egress or self._connector is None:
            return ""
        relay = EgressRelay(with_preface(self._connector, "egress", config.token), self._port())
        await stack.enter_async_context(relay)
        return f"http://127.0.0.1:{relay.port}"

    async def _connect(self) -> NatsBus:
        key = KeyPair.from_seed(self._config.seed) if self._config.seed else None
        return await NatsBus.connect(
            self._bus(),
            uid=self._config.uid,
            jwt=(lambda: self._jwt) if key else None,
            sign=key.sign if key else None,
            projects=self._config.projects,
            connect_timeout=CONNECT_TIMEOUT,
        )

    async def _refuse(self, sidecar: Sidecar, control: ControlClient | None) -> int:
        """End before the agent is started: the wall has a hole."""
        reached = ", ".join(self._wall.breaches)
        said = f"is not closed: it reached {reached}"
        sidecar.status.fixed(WorkerState.FAILED, f"the sandbox {said}")
        text = f"the sandbox of @{self._config.nick} {said}"
        await sidecar.raise_alert(Alert("wall-breached", text))
        await sidecar.status.publish()
        await self._report(control)
        return BREACHED

    async def _report(self, control: ControlClient | None) -> None:
        """Report the first event. The worker goes on if the control plane does not take it."""
        if control is None:
            return
        try:
            await control.post_events(self._config.uid, [self._wall.event()])
        except PostroomError as error:
            _log.warning("the control plane did not take the wall's report: %s", error)

    async def _serve(
        self,
        sidecar: Sidecar,
        bus: NatsBus,
        control: ControlClient | None,
        poster: EventPoster | None,
        http: HttpClient | None,
    ) -> None:
        renewal = CredentialRenewal(
            bus, bus.uid, expires_at=self._config.jwt_expires_at, accept=self._renewer(bus)
        )

        _renew_on_request(bus, renewal)
        async with asyncio.TaskGroup() as tasks:
            background = [
                tasks.create_task(work)
                for work in (
                    sidecar.status.run(),
                    sidecar.inbox.run(),
                    sidecar.priority.run(),
                    sidecar.engine.run(),
                    sidecar.announcer.run(),
                    renewal.run(),
                    _watch(bus),
                    *self._uplink(sidecar, control, poster, http),
                )
            ]
            grace = self._config.stop_grace
            agent = tasks.create_task(sidecar.agent.run(sidecar.actions, grace))
            pulls: list[Subscription] = []
            background.append(tasks.create_task(self._pull(sidecar, bus, pulls)))
            stopping = tasks.create_task(self._stop.wait())
            await asyncio.wait({agent, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not self._stop.is_set():
                # The agent will not run again: pull no more, so that its records wait in the log. Only the priority
                # lane stays open, for cancels.
                await asyncio.gather(*(pull.close() for pull in pulls[1:]))
                _log.info("the agent runs no more: its records wait in the log")
                await self._stop.wait()
            await _drain(sidecar, pulls, agent)
            if poster is not None:
                await poster.drained(SETTLE_TIMEOUT)
            for task in background:
                task.cancel()

    def _uplink(
        self,
        sidecar: Sidecar,
        control: ControlClient | None,
        poster: EventPoster | None,
        http: HttpClient | None,
    ) -> list[Coroutine[Any, Any, None]]:
        """Events to the control plane, the wall's report first; what people say to the agent, and their terminals."""
        if control is None or poster is None or http is None:
            return []
        poster.record(self._wall.event())
        config, channel = self._config, sidecar.channel
        terminals = Terminals(http, config.uid, shells(config, sidecar.environment))
        channel.terminal = terminals.open
        return [poster.run(), poll(control, config.uid, channel), terminals.run()]

    async def _pull(self, sidecar: Sidecar, bus: NatsBus, pulls: list[Subscription]) -> None:
        """Begin to pull, the priority lane first, and the inbox after the tasks of earlier runs."""
        # No more of the inbox than the agent may hold: a crash counts against no message that it never saw.
        batches = BATCHES | {"INBOX": self._config.agent.held}
        for stream, handler in sidecar.handlers(self._config.agent.feed).items():
            if stream == "INBOX":
                await _recover(sidecar)
                sidecar.priority.recovered.set()
            pulls.append(await bus.consume(stream, bus.uid, handler, batch=batches[stream]))

    def _renewer(self, bus: NatsBus) -> Callable[[str, float], Awaitable[None]]:
        async def accept(jwt: str, seconds: float) -> None:
            former, self._jwt = self._jwt, jwt
            try:
                await bus.renew(timeout=seconds)
            except PostroomError:
                self._jwt = former
                raise

        return accept


def _connector(config: SidecarConfig) -> Connector | None:
    """Connects to the gateway; None where the sidecar dials bus and control plane directly."""
    if config.gateway_socket:
        return by_socket(config.gateway_socket)
    if config.gateway_address:
        return by_tls(config.gateway_address, config.gateway_ca)
    return None


def _nothing(event: dict[str, Any]) -> None:
    """Report nothing."""


async def _recover(sidecar: Sidecar) -> None:
    """Take over the tasks of earlier runs; waits for a control plane that is away."""
    attempt = 0
    while True:
        try:
            found = await sidecar.task_client.recover(sidecar.engine)
        except PostroomError as error:
            # Any error: that the control plane is busy with others must not end this worker.
            attempt += 1
            _log.warning("the tasks of earlier runs are not known yet: %s", error)
            await asyncio.sleep(BACKOFF.delay(attempt))
        else:
            if found:
                _log.info("%d tasks of earlier runs go on", found)
            return


def _renew_on_request(bus: NatsBus, renewal: CredentialRenewal) -> None:
    notice = subjects.renewal_notice(bus.uid)

    def arrived(frame: Frame) -> None:
        if frame.subject == notice:  # others are late answers
            renewal.ask()

    bus.mailbox.route(notice.rpartition(".")[0], arrived)


async def _watch(bus: NatsBus) -> None:
    """End the worker when its connection is lost for good: its credential was revoked or has expired."""
    raise await bus.wait_lost()


async def _drain(sidecar: Sidecar, pulls: list[Subscription], agent: asyncio.Task[None]) -> None:
    """Stop pulling, end the agent, and finish what is under way."""
    _log.info("stopping")
    ended = agent.done()
    sidecar.engine.stop()
    closing = asyncio.gather(*(pull.close() for pull in pulls))
    sidecar.agent.stop()
    await asyncio.wait({agent})
    await sidecar.engine.settled(SETTLE_TIMEOUT)
    await closing
    await sidecar.inbox.stopped()
    await sidecar.inbox.confirmations.done(SETTLE_TIMEOUT)
    if not ended:
        sidecar.status.fixed(WorkerState.STOPPED)
    await sidecar.status.publish()


def main() -> int:
    """Entry point of `python -m postroom.sidecar`; returns the exit code."""
    inherited.settle()
    to_stderr()
    try:
        path = os.environ.pop(ENVIRONMENT, "")
        if not path:
            raise InvalidInput(f"{ENVIRONMENT} does not name the sidecar's configuration file")
        config = load(Path(path))
        harden()
        to_stderr(config.log_level)
        wall = examine(config.canaries, config.sandbox_level, config.sandbox_holes)
        return asyncio.run(SidecarProcess(config, wall).run())
    except PostroomError as error:
        return _fail(error)
    except MemoryError:
        return _out_of_memory()
    except BaseExceptionGroup as group:
        errors = list(leaves(group))
        if any(isinstance(error, MemoryError) for error in errors):
            return _out_of_memory()
        known = [error for error in errors if isinstance(error, PostroomError)]
        if len(known) < len(errors):
            raise
        return _fail(known[0])


def _out_of_memory() -> int:
    os.write(2, b"the sidecar got no more memory\n")
    return OUT_OF_MEMORY


def _fail(error: PostroomError) -> int:
    _log.error("%s", error)
    return exit_code(error)
