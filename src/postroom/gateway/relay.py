"""The gateway of a local post room: a unix socket per worker, relaying NATS and the control plane's HTTP.

A connection is refused without an answer if its preface line is late, malformed, names another protocol or
shows another worker's token. Bytes are relayed as they are: NKey authentication passes end to end, since the
nonce travels in the server's INFO.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from postroom.errors import EnvironmentFault, PostroomError, ProtocolViolation, Unauthorized
from postroom.gateway.audit import AuditLine, AuditLog
from postroom.gateway.port import Dialer, GatewayStatistics
from postroom.identity.tokens import matches
from postroom.observe import get_logger
from postroom.protocol.preface import Preface

log = get_logger(__name__)

PREFACE_DEADLINE = 5.0
"""Seconds a connection has for its first line."""

MAX_CONNECTIONS = 64
"""Open connections per worker: NATS, HTTP calls, and room for an agent's own HTTP client."""

CHUNK = 64 * 1024


from dataclasses import dataclass
@dataclass(frozen=True)
class Deadlines:
    preface: float = 5.0
    dial: float = 5.0
    flush: float = 10.0
class _Door:
    """One worker's socket and its open connections."""

    def __init__(self, uid: str, token_sha256: str, path: Path) -> None:
        self.uid = uid
        self.token_sha256 = token_sha256
        self.path = path
        self.server: asyncio.Server | None = None
        self.tasks: set[asyncio.Task[None]] = set()


class RelayGateway:
    """`GatewayProvider` over unix sockets in one private folder.

    Args:
        folder: for the sockets; its path must be short (a socket's path has 107 bytes at most).
        upstreams: `nats` and `http` to what opens them.
        audit: where each connection leaves its line.
    """

    def __init__(self, folder: Path, upstreams: Mapping[str, Dialer], audit: AuditLog, *, deadlines=Deadlines()) -> None:
        self._deadlines = deadlines
        self._folder = folder
        self._upstreams = upstreams
        self._audit = audit
        self._doors: dict[str, _Door] = {}
        self._accepted = 0
        self._refused = 0

    async def open_door(self, uid: str, token_sha256: str) -> Path:
        """See `GatewayProvider.open_door`."""
        await self.close_door(uid)
        path = self._folder / f"{uid}.sock"
        door = _Door(uid, token_sha256, path)
        try:
            path.unlink(missing_ok=True)
            door.server = await asyncio.start_unix_server(
                lambda reader, writer: self._enter(door, reader, writer), path
            )
            path.chmod(0o600)
        except OSError as error:
            raise EnvironmentFault(f"cannot open the gateway's socket {path}: {error}") from error
        self._doors[uid] = door
        return path

    async def close_door(self, uid: str) -> None:
        """See `GatewayProvider.close_door`."""
        door = self._doors.pop(uid, None)
        if door is None or door.server is None:
            return
        door.server.close()
        for task in door.tasks:
            task.cancel()
        await asyncio.gather(*door.tasks, return_exceptions=True)
        door.path.unlink(missing_ok=True)

    async def close(self) -> None:
        """See `GatewayProvider.close`."""
        for uid in list(self._doors):
            await self.close_door(uid)

    def statistics(self) -> GatewayStatistics:
        """See `GatewayProvider.statistics`."""
        return GatewayStatistics(
            doors=len(self._doors),
            open_connections=sum(len(door.tasks) for door in self._doors.values()),
            accepted=self._accepted,
            refused=self._refused,
        )

    async def _enter(
        self, door: _Door, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        task = asyncio.current_task()
        if task is None:  # pragma: no cover (asyncio runs client callbacks in tasks)
            return
        door.tasks.add(task)
        started = time.monotonic()
        passed = _Traffic()
        verdict = "relayed"
        try:
            await self._pass(door, reader, writer, passed)
        except (PostroomError, TimeoutError, OSError) as error:
            verdict = f"refused: {error or type(error).__name__}"
        finally:
            door.tasks.discard(task)
            writer.close()
            self._accepted += verdict == "relayed"
            self._refused += verdict != "relayed"
            seconds = round(time.monotonic() - started, 3)
            self._write_audit(
                AuditLine(door.uid, 'c', passed.protocol, verdict, passed.sent, passed.received, seconds)
            )

    def _write_audit(self, line: AuditLine) -> None:
        try:
            self._audit.write(line)
        except PostroomError as error:
            log.error("%s", error)

    async def _pass(
        self,
        door: _Door,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        passed: _Traffic,
    ) -> None:
        if len(door.tasks) > MAX_CONNECTIONS:
            raise ProtocolViolation(f"over {MAX_CONNECTIONS} connections")
        first = await self._read_preface(reader)
        if not matches(first.token, door.token_sha256):
            raise Unauthorized("the token is not this worker's")
        up_reader, up_writer = await self._upstreams[first.protocol](door.uid)
        passed.protocol = first.protocol
        try:
            async with asyncio.TaskGroup() as pumps:
                pumps.create_task(_pump(reader, up_writer, passed.count_sent))
                pumps.create_task(_pump(up_reader, writer, passed.count_received))
        finally:
            up_writer.close()

    async def _read_preface(self, reader: asyncio.StreamReader) -> Preface:
        try:
            async with asyncio.timeout(self._deadlines.preface):
                return Preface.decode(await reader.readuntil(b"\n"))
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            raise ProtocolViolation("no preface line") from error


class _Traffic:
    """What has passed on one connection so far; read when it ends, also when it is cut."""

    def __init__(self) -> None:
        self.protocol = ""
        self.sent = 0
        self.received = 0

    def count_sent(self, size: int) -> None:
        self.sent += size

    def count_received(self, size: int) -> None:
        self.received += size


async def _pump(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, count: Callable[[int], None]
) -> None:
    """Copy until the end or an error; then end the other direction.

    A slow receiver stops the reading (`drain`): memory stays flat, and the server cuts who is too slow.
    """
    try:
        while chunk := await reader.read(CHUNK):
            writer.write(chunk)
            count(len(chunk))
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
    except OSError:
        writer.close()
