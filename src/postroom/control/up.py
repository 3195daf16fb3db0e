"""`postroom up`: the order in which a post room comes alive, and how it ends.

    lock the state folder → bind the HTTP port → keys → nats-server → /livez and the banner
    → heavy imports → database → streams → folds → workers → /readyz

What can fail for a reason that a person must know fails before the banner. The bus is ready in well under a second;
the imports of the API take longer than that, so they come after.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace

from postroom import __version__
from postroom.bus.disk import DiskWatch
from postroom.bus.embedded import STOP_GRACE, EmbeddedServer
from postroom.bus.server_config import ServerConfig
from postroom.bus.supervisor import Supervisor
from postroom.control.front import Front
from postroom.control.listen import HttpListener, bind
from postroom.control.statefile import Announcement, StateLock, announce, prepare, withdraw
from postroom.errors import PortTaken, PostroomError, leaves
from postroom.identity.trust import Trust
from postroom.observe import get_logger, to_file
from postroom.sandbox.select import check_name
from postroom.settings import DEFAULT_HTTP_PORT, DEFAULT_NATS_PORT, DEFAULT_ORG, Settings

log = get_logger(__name__)

READY_FD = "POSTROOM_READY_FD"
"""Environment variable: a descriptor that gets `ready\\n` when everything is up, and is closed in any case."""


def run(settings: Settings) -> int:
    """Run until SIGINT, SIGTERM or a shutdown request; returns the exit status.

    Raises:
        InvalidInput: no sandbox has the name given.
        PostroomError: it could not be started, or the bus is gone for good.
    """
    check_name(settings.sandbox)
    os.umask(0o077)  # whatever this process and its children write is for this user alone
    prepare(settings)
    lock = StateLock.acquire(settings)
    to_file(settings.logs / "control.log")
    try:
        asyncio.run(_PostRoom(settings).live())
    except Exception as failure:
        log.exception("the post room ends")
        raise _told(failure, settings) from None
    finally:
        withdraw(settings)
        lock.release()
        _close_ready()
    return 0


def _told(failure: BaseException, settings: Settings) -> PostroomError:
    """What to tell a person: our own error if there is one in a group, else where the traceback is."""
    errors = list(leaves(failure))
    for error in errors:
        if isinstance(error, PostroomError):
            return error
    what = f"{type(errors[0]).__name__}: {errors[0]}"
    return PostroomError(f"unexpected {what}", remedy=f"see {settings.logs / 'control.log'}")


class _PostRoom:
    """One life of a post room."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._started = time.monotonic()
        self._ending = asyncio.Event()
        self._announce: Callable[[], None] = lambda: None

    async def live(self) -> None:
        """From the first socket to the last."""
        listener = bind(self._settings.host, self._settings.http_port, default=DEFAULT_HTTP_PORT)
        trust = Trust.load_or_create(self._settings.keys, DEFAULT_ORG)
        supervisor = await self._start_server(trust)
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self._ending.set)
        front = Front(_hosts(listener))
        http = HttpListener(front, listener)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(supervisor.run(), name="nats-server")
            tasks.create_task(http.serve(), name="http")
            disk = DiskWatch(server_config(self._settings, trust), lambda: supervisor.server)
            watching = tasks.create_task(disk.run(), name="disk")
            try:
                await self._open_house(front, listener, trust, supervisor)
            finally:
                watching.cancel()
                http.stop()
                await supervisor.stop()

    async def _start_server(self, trust: Trust) -> Supervisor:
        config = server_config(self._settings, trust)
        supervisor = Supervisor(config, self._server_restarted)
        try:
            await supervisor.start()
        except PortTaken:
            if self._settings.nats_port != DEFAULT_NATS_PORT:
                raise
            supervisor = Supervisor(replace(config, port=0), self._server_restarted)
            await supervisor.start()
        return supervisor

    async def _server_restarted(self, server: EmbeddedServer) -> None:
        log.warning("nats-server was started again, pid %d", server.pid)
        self._announce()

    async def _open_house(
        self, front: Front, listener: socket.socket, trust: Trust, supervisor: Supervisor
    ) -> None:
        url = f"http://{_address(listener)}"
        self._banner(url, supervisor)
        # In a thread, so that /livez goes on answering.
        module = await asyncio.to_thread(importlib.import_module, "postroom.control.house")
        async with AsyncExitStack() as stack:
            stack.callback(withdraw, self._settings)
            building = await module.open_building(
                self._settings, supervisor, front, self._ending.set, stack
            )
            house = await module.House.open(building, self._settings, trust, stack)
            started_at = time.time()

            def announcement() -> Announcement:
                return Announcement(
                    url=url,
                    pid=os.getpid(),
                    token=house.operator_key,
                    nats_url=supervisor.server.url,
                    nats_pid=supervisor.server.pid,
                    started_at=started_at,
                    version=__version__,
                    state=str(self._settings.state),
                    me={"uid": house.owner.uid, "nick": house.owner.nick},
                )

            await house.go(announcement)
            self._announce = lambda: announce(self._settings, announcement())
            self._announce()
            _close_ready(b"ready\n")
            _say(f"  ready after {time.monotonic() - self._started:.1f} s; Ctrl-C ends it")
            await self._ending.wait()
            _say("  ending")
            front.shut()

    def _banner(self, url: str, supervisor: Supervisor) -> None:
        kept = "in memory, gone at the end" if self._settings.memory else str(self._settings.state)
        _say(
            f"Postroom {__version__}\n"
            f"  API    {url}\n"
            f"  bus    {supervisor.server.url} (nats-server {supervisor.server.version})\n"
            f"  state  {kept}"
        )


def server_config(settings: Settings, trust: Trust) -> ServerConfig:
    """The embedded server of a post room whose state folder is locked by this process."""
    return ServerConfig(
        folder=settings.nats,
        host=settings.host,
        port=settings.nats_port,
        operator_jwt=trust.operator_jwt,
        system_account=trust.system_account,
        preload=trust.account_jwts(),
        proxies=trust.proxies,
        memory=settings.memory,
        # No post room runs here, so who has the store is the server of a killed one, and about to end.
        lock_patience=STOP_GRACE,
    )


def _say(text: str) -> None:
    try:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read the banner has gone; the post room stays.
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _hosts(listener: socket.socket) -> frozenset[str]:
    port = listener.getsockname()[1]
    return frozenset({f"127.0.0.1:{port}", f"localhost:{port}", f"[::1]:{port}"})


def _close_ready(last_words: bytes = b"") -> None:
    descriptor = os.environ.pop(READY_FD, "")
    if not descriptor.isdigit():
        return
    try:
        if last_words:
            os.write(int(descriptor), last_words)
        os.close(int(descriptor))
    except OSError as error:
        log.warning("nobody waits for readiness: %s", error)
