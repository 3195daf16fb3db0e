"""A nats-server as a child of this process: starting, readiness, the lock on its store, stopping.

No event reports readiness: the server writes its ports to a file. `start` polls for that file every few milliseconds,
then reads the server's greeting (INFO).

Two servers on one store would both run without an error, and ruin it. The lock beside the store belongs to an open file
that the server inherits, so it lives exactly as long as the server does, even when a signal kills the process that
started it.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import signal
import socket
import ssl
import tempfile
import time
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from typing import Any

from postroom.bus.parent_death import die_with_parent
from postroom.bus.server_binary import check_version, find_binary
from postroom.bus.server_config import ServerConfig, explain_end, last_lines, port_taken, render
from postroom.errors import ProtocolViolation, ServerFailed, StateUnwritable, StoreLocked
from postroom_a2a import folder_lock
from postroom_a2a.folder_lock import name_holder
from postroom_a2a.nats import WireConnection
from postroom_a2a.nats.info import fetch_info
from postroom_a2a.nats.system import ask_server, read_answer

STOP_GRACE = 10.0
"""Seconds between asking the server to end and killing it."""

RELOAD_TIMEOUT = 15.0
"""Seconds until a server has read its configuration again."""

ONE_CORE = {"GOMAXPROCS": "1"}
"""The environment of our server, where the operator has not set it: it works on one core at a time.

Otherwise each message wakes threads on several cores, which cost a sixth more processor time for a stored publish and
gain nothing: one core stores thousands of records a second, and all of them wait for the same disk.
"""

_POLL = 0.005

_LOCK_POLL = 0.02


def lock_store(path: Path) -> int:
    """A locked descriptor of `path`: pass it to the server, then close it here.

    Raises:
        StoreLocked: a server holds it; the message names its pid.
        OSError: the file cannot be opened.
    """
    try:
        return folder_lock.acquire(path)  # it names us until the server's own pid is known
    except folder_lock.Held as error:
        raise StoreLocked(
            f"the store beside {path} is open in the nats-server with pid {error.holder}",
            remedy="stop that post room, or use another state folder",
        ) from error


async def lock_store_within(path: Path, timeout: float) -> int:
    """As `lock_store`, but wait up to `timeout` seconds for a server that holds the lock.

    The kernel reports no unlock, and the holder named in the file may not be the last one.
    """
    deadline = time.monotonic() + timeout
    while True:
        try:
            return lock_store(path)
        except StoreLocked:
            if time.monotonic() >= deadline:
                raise
        await asyncio.sleep(_LOCK_POLL)


class EmbeddedServer:
    """A running nats-server; `start` makes one."""

    def __init__(
        self, config: ServerConfig, process: asyncio.subprocess.Process, info: dict[str, Any]
    ) -> None:
        self.config = config
        self._process = process
        self._info = info

    @classmethod
    async def start(cls, config: ServerConfig) -> EmbeddedServer:
        """A server that is ready.

        Raises:
            ServerTooOld: the program is too old.
            StoreLocked: another server has the store open.
            PortTaken: another process listens on the port.
            StateUnwritable: the folder cannot be written, or the disk is full.
            ServerFailed: it ended, or was not ready in time; with the last lines of its log.
        """
        binary = find_binary(config.program)
        await check_version(binary)
        with _unwritable(config.folder):
            _prepare_folder(config)
            lock = await lock_store_within(config.lock, config.lock_timeout)
        try:
            process = await _launch(binary, config, lock)
        finally:
            os.close(lock)  # the server's copy keeps the lock
        info = await _greeted(config, process)
        return cls(replace(config, port=int(info["port"])), process, info)

    @property
    def url(self) -> str:
        """Address for clients on this machine, `nats://host:port`, or `tls://` if it speaks TLS."""
        near = self.config.near
        host = f"[{near}]" if ":" in near else near
        scheme = "nats" if self.config.tls is None else "tls"
        return f"{scheme}://{host}:{self.config.port}"

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self.config.port

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    @property
    def version(self) -> str:
        """Version of the server, e.g. "2.15.1"."""
        return str(self._info["version"])

    @property
    def server_id(self) -> str:
        """The id by which the system account addresses this server."""
        return str(self._info["server_id"])

    @property
    def running(self) -> bool:
        """Whether it runs, as far as is known."""
        return self._process.returncode is None

    async def wait(self) -> int:
        """Its exit status, after its end; negative for a signal."""
        return await self._process.wait()

    async def stop(self) -> int:
        """End it: asked first, killed after `STOP_GRACE` seconds. Returns its exit status."""
        if self.running:
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()
        try:
            async with asyncio.timeout(STOP_GRACE):
                return await self._process.wait()
        except TimeoutError:
            return await _end(self._process)

    async def reconfigure(self, config: ServerConfig) -> None:
        """Apply the part of `config` that a running server can change: the trusted proxies.

        Another operator needs a restart. A server that started without any proxy must not get one: version 2.15.1 dies
        of it.

        Raises:
            ServerFailed: it did not take it; it runs on as before.
            StateUnwritable: the configuration cannot be written.
        """
        with _unwritable(config.folder):
            said = config.log.stat().st_size
            _write_config(config)
        self.reload()
        deadline = asyncio.get_running_loop().time() + RELOAD_TIMEOUT
        while asyncio.get_running_loop().time() < deadline:
            lines = _since(config.log, said)
            if "Reloaded server configuration" in lines:
                self.config = replace(config, port=self.config.port)
                return
            if "Failed to reload" in lines or not self.running:
                break
            await asyncio.sleep(_POLL)  # only the server's log reports it
        raise ServerFailed("nats-server did not take its new configuration; see its log")

    def reload(self) -> None:
        """Have it read its files again: new connections see a new certificate, open ones stay."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGHUP)

    def kill(self) -> None:
        """Kill it, as a crash would; `wait` returns when it is gone."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    async def effective_sync_always(self, system: WireConnection, *, timeout: float = 5.0) -> bool:
        """Whether the running server flushes each record to disk before it acknowledges it.

        Asks the server itself: its configuration file may say otherwise.
        """
        subject = f"$SYS.REQ.SERVER.{self.server_id}.JSZ"
        answer = await ask_server(system, subject, b'{"config":true}', timeout=timeout)
        config = read_answer(answer).data.get("config")
        if not isinstance(config, dict):
            raise ProtocolViolation("the server's answer lacks its JetStream settings")
        return bool(config.get("sync_always", False))


@contextlib.contextmanager
def _unwritable(folder: Path) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise StateUnwritable(
            f"cannot write to {error.filename or folder}: {error.strerror}",
            remedy="free space, or choose another state folder",
        ) from error


def _prepare_folder(config: ServerConfig) -> None:
    config.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    config.folder.chmod(0o700)
    for folder in (config.accounts, config.ports):
        folder.mkdir(exist_ok=True, mode=0o700)


def _write_files(config: ServerConfig) -> None:
    """Needs the lock: port files left by a killed server are removed."""
    for orphan in config.ports.glob("*.ports"):
        orphan.unlink()
    _write_config(config)


def _since(log: Path, offset: int) -> str:
    with log.open("rb") as file:
        file.seek(offset)
        return file.read().decode("utf-8", "replace")


def _write_config(config: ServerConfig) -> None:
    descriptor, temporary = tempfile.mkstemp(dir=config.folder, prefix=".config.")  # 0600
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(render(config))
        Path(temporary).replace(config.file)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _check_port(config: ServerConfig) -> None:
    """Check before the start, since the server itself only logs it; another process may still be faster."""
    if not config.port:
        return
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server does
        try:
            probe.bind((config.host, config.port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise port_taken(config) from error
            raise ServerFailed(
                f"cannot listen on {config.host}, port {config.port}: {error.strerror}",
                remedy="choose another address or port",
            ) from error


async def _launch(binary: Path, config: ServerConfig, lock: int) -> asyncio.subprocess.Process:
    with _unwritable(config.folder):
        _check_port(config)
        _write_files(config)
        process = await _spawn(binary, config, lock)
        try:
            name_holder(lock, process.pid)
        except BaseException:
            await _end(process)
            raise
        return process


async def _spawn(binary: Path, config: ServerConfig, lock: int) -> asyncio.subprocess.Process:
    with config.stderr.open("wb") as stderr:
        return await asyncio.create_subprocess_exec(
            binary,
            "--config",
            config.file,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=stderr,
            stderr=stderr,
            pass_fds=(lock,),
            env=ONE_CORE | os.environ,
            # A Ctrl-C is for Postroom: it stops the server when everything else has ended.
            start_new_session=True,
            preexec_fn=die_with_parent(signal.SIGTERM),
        )


async def _greeted(config: ServerConfig, process: asyncio.subprocess.Process) -> dict[str, Any]:
    """As `_ready`, within the start timeout; otherwise ends the server."""
    try:
        async with asyncio.timeout(config.start_timeout):
            return await _ready(config, process)
    except TimeoutError as error:
        await _end(process)
        raise ServerFailed(
            f"nats-server was not ready within {config.start_timeout:g} s: "
            + last_lines(config, process.pid)
        ) from error
    except BaseException:
        await _end(process)
        raise


async def _ready(config: ServerConfig, process: asyncio.subprocess.Process) -> dict[str, Any]:
    """The server's INFO, once it has written its ports and greets."""
    while process.returncode is None:
        for file in config.ports.glob(f"*_{process.pid}.ports"):
            # The file may be half written, and the server may end during the question.
            with contextlib.suppress(ValueError, OSError):
                url = json.loads(file.read_text("utf-8"))["nats"][0]
                return await _known(config, int(url.rpartition(":")[2]))
        await asyncio.sleep(_POLL)
    raise explain_end(config, process.pid, process.returncode)


async def _known(config: ServerConfig, port: int) -> dict[str, Any]:
    tls = config.tls
    try:
        return await fetch_info(
            config.near, port, tls=tls.client if tls else None, tls_name=tls.name if tls else ""
        )
    except ProtocolViolation as error:
        raise ServerFailed(
            f"what listens on port {port} does not greet as a nats-server"
        ) from error
    except ssl.SSLCertVerificationError as error:
        raise ServerFailed(
            f"the certificate of nats-server does not stand for {tls and tls.name}: "
            f"{error.verify_message}",
            remedy="postroom tls status",
        ) from error


async def _end(process: asyncio.subprocess.Process) -> int:
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    return await process.wait()
