"""`postroom up`: the order in which a post room starts, and how it ends.

    lock the state folder → certificate → HTTP ports → keys → nats-server, our own or not → /livez and the banner
    → heavy imports → database → streams → folds → workers → /readyz

A failure that a person must know of comes before the banner. The imports of the API take longer than the start of the
bus, which is ready in well under a second, so they come after it.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from postroom import __version__
from postroom.bus.disk import DiskWatch
from postroom.bus.embedded import EmbeddedServer
from postroom.bus.host import BusHost
from postroom.bus.server_config import ServerConfig
from postroom.bus.supervisor import Supervisor
from postroom.control import event_loop, nats_server
from postroom.control.banner import banner, login_commands, notes, own_addresses, say
from postroom.control.endpoints import bracketed
from postroom.control.http_listener import HttpListener, bind, bind_near
from postroom.control.http_protocol import Connections, raise_descriptors
from postroom.control.org_router import OrgRouter
from postroom.control.settings_check import check_settings
from postroom.control.statefile import Announcement, StateLock, announce, prepare, withdraw
from postroom.disk import check_room
from postroom.errors import EnvironmentFault, PortTaken, PostroomError, StateUnwritable, leaves
from postroom.identity.trust import Trust
from postroom.observe import get_logger, to_file, tracing
from postroom.protocol.proxies import Proxies
from postroom.settings import (
    DEFAULT_HTTP_PORT,
    DEFAULT_HTTPS_PORT,
    DEFAULT_ORG,
    Settings,
)
from postroom.store.place import shown_place
from postroom.workers.compiled import compile_modules
from postroom_a2a.times import format_time

if TYPE_CHECKING:
    from postroom.control.certificate import CertificateKeeper

log = get_logger(__name__)

READY_FD = "POSTROOM_READY_FD"
"""Environment variable: a descriptor that gets `ready\\n` when everything is up, and is closed in any case."""


def run(settings: Settings) -> int:
    """Run until SIGINT, SIGTERM or a shutdown request; returns the exit status."""
    umask = os.umask(0o077)  # files of this process and its children are for this user alone
    sys.dont_write_bytecode = True  # others may share the installation: see `compiled`
    raise_descriptors()
    prepare(settings)
    lock = StateLock.acquire(settings)
    withdraw(settings)  # a killed post room leaves it, and its process id may be another's by now
    try:
        if not settings.memory:
            check_room(settings.state)
        nats_server.check_named(settings)
        _run(settings, umask)
    finally:
        withdraw(settings)
        lock.release()
        _close_ready()
    return 0


def _run(settings: Settings, umask: int) -> None:
    to_file(settings.logs / "control.log")
    try:
        event_loop.run(_PostRoom(settings, umask).live())
    except Exception as failure:  # noqa: BLE001 (each is logged, and reported)
        _note_end(failure)
        raise _reported(failure, settings) from None


def _note_end(failure: BaseException) -> None:
    errors = list(leaves(failure))
    if all(isinstance(error, EnvironmentFault) for error in errors):  # no fault of this program
        log.error("the post room ends: %s", "; ".join(dict.fromkeys(map(str, errors))))
    else:
        log.error("the post room ends", exc_info=failure)


def _reported(failure: BaseException, settings: Settings) -> PostroomError:
    """The error for a person: the first of ours in a group, otherwise one that names the log."""
    errors = list(leaves(failure))
    for error in errors:
        if isinstance(error, PostroomError):
            return error
    try:
        check_room(settings.state)
    except StateUnwritable as full:
        return full
    what = f"{type(errors[0]).__name__}: {errors[0]}"
    return PostroomError(f"unexpected {what}", remedy=f"see {settings.logs / 'control.log'}")


class _PostRoom:
    """One run of a post room; `umask` is its user's."""

    def __init__(self, settings: Settings, umask: int) -> None:
        self._umask = umask
        self._settings = settings
        self._started = time.monotonic()
        self._ending = asyncio.Event()
        self._announce: Callable[[], None] = lambda: None
        self._endpoints = check_settings(settings)
        self._certificate: CertificateKeeper | None = None
        if self._endpoints.certified:
            from postroom.control.certificate import open_certificate  # a heavy import: X.509

            self._certificate = open_certificate(settings, self._endpoints)

    async def live(self) -> None:
        """Open everything from the first socket on, wait for the end, and close it."""
        listener = bind(self._settings.host, self._settings.http_port, usual=DEFAULT_HTTP_PORT)
        outward = self._bind_outward()
        near = bind_near(self._settings.socket_file)
        trust = Trust.load_or_create(self._settings.keys, DEFAULT_ORG)
        trust.settle()  # workers get new credentials, and servers the accounts as they are now
        host = await self._start_bus(trust)
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self._ending.set)
        router = OrgRouter(
            self._hosts(listener, outward),
            self._pages(listener, outward),
            Proxies.of(self._settings.trusted_proxies),
        )
        context = self._certificate.context if self._certificate else None
        loopback = context if self._endpoints.loopback_tls else None
        connections = (
            Connections()
        )  # of all ports: the rest of the descriptors is not for strangers
        listeners = [
            HttpListener(router, listener, loopback, connections),
            HttpListener.near(router, near),
        ]
        if outward is not None:
            listeners.append(HttpListener(router, outward, context, connections))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(host.run(), name="bus")
            for http in listeners:
                tasks.create_task(http.serve(), name="http")
            try:
                urls = self._urls(listener, outward, host)
                await self._open(router, urls, trust, host)
            finally:
                for http in listeners:
                    http.stop()
                await host.stop()

    async def _start_bus(self, trust: Trust) -> BusHost:
        """Our own server, or somebody else's, examined."""
        if not self._settings.nats_urls:
            return await self._start_server(trust)
        external = nats_server.external_bus(self._settings, trust)
        await external.start()
        return external

    def _bind_outward(self) -> socket.socket | None:
        outward = self._endpoints.outward
        if outward is None:
            return None
        return bind(outward.address, outward.port, usual=DEFAULT_HTTPS_PORT, tls=True)

    def _hosts(self, listener: socket.socket, outward: socket.socket | None) -> frozenset[str]:
        return self._endpoints.hosts(*self._served(listener, outward))

    def _pages(self, listener: socket.socket, outward: socket.socket | None) -> frozenset[str]:
        return self._endpoints.pages(*self._served(listener, outward))

    def _served(
        self, listener: socket.socket, outward: socket.socket | None
    ) -> tuple[int, int, tuple[str, ...]]:
        """The ports of the API, and the names of the certificate."""
        port = outward.getsockname()[1] if outward is not None else 0
        names = self._certificate.certificate.names if self._certificate else ()
        return listener.getsockname()[1], port, names

    def _urls(
        self, listener: socket.socket, outward: socket.socket | None, host: BusHost
    ) -> tuple[str, ...]:
        """The API's URL for this machine, then the API's and the bus's for others, if any."""
        address, port = listener.getsockname()[:2]
        scheme = "https" if self._endpoints.loopback_tls else "http"
        own = f"{scheme}://{bracketed(address)}:{port}"
        # What the operator says of proxies and tunnels counts: nobody here can know it.
        public = [origin.url for origin in self._endpoints.public]
        if outward is None or self._certificate is None:
            return own, *public
        names = [bracketed(n) for n in self._endpoints.public_names(self._certificate.certificate)]
        https = public or [f"https://{name}:{outward.getsockname()[1]}" for name in names]
        if not isinstance(host, Supervisor):
            return own, *https
        return own, *https, *(f"tls://{name}:{host.server.port}" for name in names)

    def _server_config(self, trust: Trust) -> ServerConfig:
        return nats_server.server_config(self._settings, trust, self._endpoints, self._certificate)

    async def _start_server(self, trust: Trust) -> Supervisor:
        config = self._server_config(trust)
        supervisor = Supervisor(config, self._server_restarted)
        try:
            await supervisor.start()
        except PortTaken:
            if self._settings.nats_port is not None:
                raise
            supervisor = Supervisor(replace(config, port=0), self._server_restarted)
            await supervisor.start()
        return supervisor

    async def _server_restarted(self, server: EmbeddedServer) -> None:
        log.warning("nats-server was started again, pid %d", server.pid)
        if self._certificate is not None and self._endpoints.encrypted:
            server.reload()  # the certificate may have changed while it started
        try:
            self._announce()
        except StateUnwritable as error:
            # `server.json` keeps the old process id of the server, which nobody needs to reach the post room.
            log.warning("%s", error)

    async def _open(
        self, router: OrgRouter, urls: tuple[str, ...], trust: Trust, host: BusHost
    ) -> None:
        certificate = self._certificate
        for line in banner(self._settings, urls, host, certificate):
            say(line)
        # In a thread, so that /livez goes on answering.
        module = await asyncio.to_thread(importlib.import_module, "postroom.control.org")
        tracing.begin()
        async with AsyncExitStack() as stack:
            stack.callback(tracing.end)
            stack.callback(withdraw, self._settings)
            shared = importlib.import_module("postroom.control.app")
            installation = await shared.open_installation(
                self._settings,
                host,
                router,
                trust,
                self._ending.set,
                stack,
                endpoints=self._endpoints,
                certificate=certificate,
            )
            background = installation.background
            if isinstance(host, Supervisor):
                disk = DiskWatch(self._server_config(trust), lambda: host.server)
                background.supervise("disk", disk.run)
            org = await module.Organisation.open(
                installation,
                self._settings,
                trust,
                stack,
                rotated=self._key_rotated,
            )
            background.tell_by(org.parts.alerts.tell)
            if self._endpoints.grpc is not None:
                grpc = await asyncio.to_thread(importlib.import_module, "postroom.control.a2a.grpc")
                await grpc.open_grpc(installation, self._endpoints, certificate, urls[0], stack)
            started_at = format_time(time.time())
            notes_shown = tuple(self._notes(host))

            def announcement() -> Announcement:
                return Announcement(
                    url=urls[0],
                    pid=os.getpid(),
                    token=org.key.text,
                    nats_url=",".join(host.address.servers),
                    nats_pid=host.pid,
                    started_at=started_at,
                    version=__version__,
                    state=str(self._settings.state),
                    me={"uid": org.owner.uid, "nick": org.owner.nick},
                    ca=certificate.ca if certificate else "",
                    listen=urls[1:],
                    tls=certificate.shown() if certificate else None,
                    notes=notes_shown,
                    database=shown_place(self._settings),
                    logins=tuple(login_commands(self._settings, urls[1:], certificate)),
                )

            orgs = module.open_orgs(installation, org, trust, announcement, self._key_rotated)
            await org.go(announcement, orgs)
            await orgs.open(stack)
            self._announce = lambda: announce(self._settings, announcement())
            self._announce()
            event_loop.settle()
            _close_ready(b"ready\n")
            say(f"  ready after {time.monotonic() - self._started:.1f} s; Ctrl-C ends it")
            background.supervise("compile", partial(compile_modules, self._umask))
            if certificate is not None:
                # Somebody else's servers have certificates of their own.
                own = isinstance(host, Supervisor) and self._endpoints.encrypted
                reload = host.reload if own else _nothing
                background.supervise("certificate", partial(certificate.run, reload, org.alert))
            await self._ending.wait()
            say("  ending")
            router.shut()

    def _key_rotated(self) -> None:
        try:
            self._announce()
        except StateUnwritable as error:
            log.error("local commands still have the former key until the next start: %s", error)

    def _notes(self, host: BusHost) -> Iterator[str]:
        """The notes for the operator, printed and logged."""
        for note in notes(
            self._settings, self._endpoints, host, self._certificate, own_addresses()
        ):
            log.warning("%s", note)
            say(f"  note   {note}")
            yield note


def _nothing() -> None:
    pass


def _close_ready(last_words: bytes = b"") -> None:
    descriptor = os.environ.pop(READY_FD, "")
    if not descriptor.isdigit():
        return
    try:
        if last_words:
            os.write(int(descriptor), last_words)
        os.close(int(descriptor))
    except OSError as error:
        log.warning("cannot report readiness: %s", error)
