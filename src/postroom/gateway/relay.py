"""The gateway of a local post room: a unix socket per worker, relaying NATS and the control plane's HTTP.

A connection is refused without an answer if its preface line is late, malformed, names another protocol or
shows another worker's token. Bytes are relayed as they are: NKey authentication passes end to end, since the
nonce travels in the server's INFO.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from postroom.errors import EnvironmentFault, PostroomError, ProtocolViolation, Unauthorized
from postroom.gateway.port import AuditSink, Dialer, DoorSpec, GatewayStatistics
from postroom.identity.tokens import matches
from postroom.observe import get_logger
from postroom.protocol.audit import ALLOWED, DENIED, AuditRecord
from postroom.protocol.preface import MAX_BYTES, Preface
from postroom.protocol.times import format_time

log = get_logger(__name__)

MAX_CONNECTIONS = 64
"""Open connections per worker: NATS, HTTP calls, and room for an agent's own HTTP client."""

CHUNK = 64 * 1024


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Seconds that a connection has.

    Attributes:
        preface: for its first line.
        dial: until its upstream is open.
        flush: to take what is buffered when both sides have ended; then it is cut.
    """

    preface: float = 5.0
    dial: float = 5.0
    flush: float = 10.0


class _Door:
    """One worker's socket and its open connections."""

    def __init__(self, uid: str, org: str, token_sha256: str, path: Path) -> None:
        self.uid = uid
        self.org = org
        self.token_sha256 = token_sha256
        self.path = path
        self.server: asyncio.Server | None = None
        self.tasks: set[asyncio.Task[None]] = set()
        self.closed = False


class RelayGateway:
    """`GatewayProvider` over unix sockets in one private folder.

    Args:
        folder: for the sockets; its path must be short (a socket's path has 107 bytes at most).
        upstreams: `nats` and `http` to what opens them.
        audit: where each connection leaves its lines; what it cannot take is not relayed.
        deadlines: how long a connection may keep us waiting.
    """

    def __init__(
        self,
        folder: Path,
        upstreams: Mapping[str, Dialer],
        audit: AuditSink,
        *,
        deadlines: Deadlines = Deadlines(),
    ) -> None:
        self._folder = folder
        self._deadlines = deadlines
        self._upstreams = upstreams
        self._audit = audit
        self._doors: dict[str, _Door] = {}
        self._accepted = 0
        self._refused = 0

    async def open_door(self, spec: DoorSpec) -> Path:
        """See `GatewayProvider.open_door`."""
        uid = spec.uid
        await self.close_door(uid)
        path = self._folder / f"{uid}.sock"
        door = _Door(uid, spec.org, spec.token_sha256, path)
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
        door.closed = True
        door.path.unlink(missing_ok=True)
        # Who has connected already is let in by these turns of the loop, to be refused: a connection that
        # asyncio has accepted when its server closes would stay open, unserved.
        for _ in range(3):
            await asyncio.sleep(0)
        door.server.close()
        for task in door.tasks:
            task.cancel()
        await asyncio.gather(*door.tasks, return_exceptions=True)

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
        visit = _Visit(door)
        try:
            await self._pass(door, reader, writer, visit)
        except (PostroomError, TimeoutError, OSError) as error:
            visit.verdict = f"refused: {str(error) or type(error).__name__}"
        except asyncio.CancelledError:
            if not door.closed:  # cut by `close_door`, which is what this task ends with
                raise
        finally:
            writer.transport.abort()
            door.tasks.discard(task)
            self._refused += visit.verdict != "relayed"
            self._write_ending(visit)

    def _write_ending(self, visit: _Visit) -> None:
        try:
            self._audit.write(visit.record("close"))
        except PostroomError as error:  # nothing passed, or the log says since when something did
            log.error("%s", error)

    async def _pass(
        self,
        door: _Door,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        visit: _Visit,
    ) -> None:
        if door.closed:  # accepted just before, and its turn came only now
            raise Unauthorized("the door is closed")
        if len(door.tasks) > MAX_CONNECTIONS:
            raise ProtocolViolation(f"over {MAX_CONNECTIONS} connections")
        first = await self._read_preface(reader)
        if not matches(first.token, door.token_sha256):
            raise Unauthorized("the token is not this worker's")
        visit.protocol = first.protocol
        up_reader, up_writer = await self._dial(first.protocol, door.uid)
        try:
            self._audit.write(visit.record("open"))
            visit.verdict = "relayed"
            self._accepted += 1
            async with asyncio.TaskGroup() as pumps:
                pumps.create_task(_pump(reader, up_writer, visit.count_sent))
                pumps.create_task(_pump(up_reader, writer, visit.count_received))
            async with asyncio.TaskGroup() as flushes:
                for end in (writer, up_writer):
                    flushes.create_task(_flush(end, self._deadlines.flush))
        finally:
            up_writer.transport.abort()

    async def _dial(
        self, protocol: str, uid: str
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        dial = self._upstreams.get(protocol)
        if dial is None:
            raise ProtocolViolation(f"{protocol} is not served here")
        async with asyncio.timeout(self._deadlines.dial):
            return await dial(uid)

    async def _read_preface(self, reader: asyncio.StreamReader) -> Preface:
        line = b""
        try:
            async with asyncio.timeout(self._deadlines.preface):
                # Byte by byte, so that a line that is too long is refused at once; all but the first are buffered.
                while not line.endswith(b"\n") and len(line) < MAX_BYTES:
                    line += await reader.readexactly(1)
        except asyncio.IncompleteReadError as error:
            raise ProtocolViolation("no preface line") from error
        except TimeoutError as error:
            raise ProtocolViolation("no preface in time") from error
        return Preface.decode(line)


class _Visit:
    """One connection so far: what its audit lines say, also when it is cut."""

    def __init__(self, door: _Door) -> None:
        self.door = door
        self.name = secrets.token_hex(8)
        self.protocol = ""
        self.verdict = "refused: interrupted"
        self.sent = 0
        self.received = 0

    def count_sent(self, size: int) -> None:
        self.sent += size

    def count_received(self, size: int) -> None:
        self.received += size

    def record(self, verb: str) -> bytes:
        """The audit line of this moment."""
        refused = verb == "close" and self.verdict != "relayed"
        return AuditRecord(
            at=format_time(time.time()),
            org=self.door.org,
            worker=self.door.uid,
            connection=self.name,
            protocol=self.protocol,
            verb=verb,
            size=self.sent + self.received,
            verdict=DENIED if refused else ALLOWED,
            reason=self.verdict.removeprefix("refused: ") if refused else "",
        ).encode()


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


async def _flush(writer: asyncio.StreamWriter, deadline: float) -> None:
    """Close when what is buffered was taken, or at the deadline: `close` alone waits for ever for a reader."""
    writer.close()
    try:
        async with asyncio.timeout(deadline):
            await writer.wait_closed()
    except (TimeoutError, OSError):
        writer.transport.abort()
