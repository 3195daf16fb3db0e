"""The gateway of a post room: a unix socket per worker, and behind each a proxy per protocol.

Sandboxes on other machines share one address (`postroom.gateway.listener`): there the token finds the door. The
gateway refuses a connection without an answer if its preface line is late or malformed, names another protocol or shows
another worker's token. The proxy decides what passes then; the door records the begin and the end of each
connection.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path

from postroom.errors import EnvironmentFault, PostroomError, ProtocolViolation, Unauthorized
from postroom.gateway.connection import Cause, GatewayConnection
from postroom.gateway.limits import RateLimit, Violations
from postroom.gateway.port import (
    DEADLINES,
    AuditSink,
    DoorDeadlines,
    DoorSpec,
    GatewayProvider,
    GatewayStatistics,
)
from postroom.gateway.stream_proxy import FirstLine, Silence, cut
from postroom.identity.tokens import digest, matches
from postroom.observe import get_logger
from postroom.protocol.alerts import Alert
from postroom.protocol.audit import ALLOWED, DENIED
from postroom.protocol.preface import Preface

log = get_logger(__name__)

Proxy = Callable[[GatewayConnection, asyncio.Transport, bytes], Awaitable[str]]
"""Serves a connection: its paused transport, and what came after the preface. Returns how it ended."""

RaiseOrgAlert = Callable[[str, Alert], Awaitable[None]]
"""Raises an alert in the organisation of that name."""

VIOLATIONS = 20

CONNECTION_COST = 10
"""Frames that a new connection counts as, for the rate limit."""


class _Door:
    """One worker's socket and its open connections."""

    def __init__(
        self,
        spec: DoorSpec,
        path: Path,
        audit: AuditSink,
        alert: Callable[[str, str], None],
        most: int,
    ) -> None:
        self.spec = spec
        self.path = path
        self.server: asyncio.Server | None = None
        self.tasks: set[asyncio.Task[None]] = set()
        self.closed = False
        self.unlisted = 0
        self.audit = audit
        self.cause = Cause()
        self.rate_limit = RateLimit(spec.rates)
        self.violations = Violations(most, alert, self.cut)

    def cut(self) -> None:
        """End every connection."""
        for task in self.tasks:
            task.cancel()

    def conn(self) -> GatewayConnection:
        """A connection that has said nothing yet."""
        return GatewayConnection(
            spec=self.spec,
            connection=secrets.token_hex(8),
            protocol="",
            audit=self.audit,
            cause=self.cause,
            offend=self.violations.offend,
            warn=self.violations.warn,
            rate_limit=self.rate_limit,
        )


class Gateway(GatewayProvider):
    """`GatewayProvider` over unix sockets in one private folder.

    Args:
        folder: for the sockets; its path must be short (a socket's path has 107 bytes at most).
        proxies: by the protocol of the preface.
        audit: takes the records; what it cannot keep does not pass.
        violations: of one worker within ten minutes after which it is cut off.
    """

    def __init__(
        self,
        folder: Path,
        proxies: Mapping[str, Proxy],
        audit: AuditSink,
        *,
        deadlines: DoorDeadlines = DEADLINES,
        alert: RaiseOrgAlert,
        violations: int = VIOLATIONS,
    ) -> None:
        self._folder = folder
        self._proxies = proxies
        self._audit = audit
        self._deadlines = deadlines
        self._alert = alert
        self._violations = violations
        self._doors: dict[str, _Door] = {}
        self._by_token: dict[str, _Door] = {}
        self._alerts: set[asyncio.Task[None]] = set()
        self._accepted = 0
        self._refused = 0
        self._offences = 0
        self._frames = self._bytes = 0

    async def open_door(self, spec: DoorSpec) -> Path:
        uid = spec.uid
        await self.close_door(uid)
        path = self._folder / f"{uid}.sock"
        door = _Door(
            spec,
            path,
            self._audit,
            lambda kind, text: self._tell(spec, kind, text),
            self._violations,
        )

        try:
            path.unlink(missing_ok=True)
            door.server = await asyncio.get_running_loop().create_unix_server(
                lambda: FirstLine(partial(self._begin, door)), path
            )
            path.chmod(0o600)
        except OSError as error:
            raise EnvironmentFault(f"cannot open the gateway's socket {path}: {error}") from error
        self._doors[uid] = door
        self._by_token[spec.token_sha256] = door
        return path

    async def admit(self, transport: asyncio.Transport, first_line: FirstLine) -> None:
        """Let in a connection whose first line the listener for other machines has read; returns when it has begun.

        Raises:
            PostroomError: its token opens no door.
        """
        line, _ = await first_line.line
        token = Preface.decode(line).token
        # Found by digest: the time of the search says nothing about any token.
        door = self._by_token.get(digest(token))
        if door is None or not matches(token, door.spec.token_sha256):
            raise Unauthorized("the token opens no worker's door")
        self._begin(door, transport, first_line)

    def _begin(self, door: _Door, transport: asyncio.Transport, first_line: FirstLine) -> None:
        task = asyncio.get_running_loop().create_task(
            self._enter(door, transport, first_line), name=f"connection of {door.spec.uid}"
        )
        door.tasks.add(task)
        task.add_done_callback(door.tasks.discard)

    async def close_door(self, uid: str) -> None:
        door = self._doors.pop(uid, None)
        if door is None or door.server is None:
            return
        door.closed = True
        if self._by_token.get(door.spec.token_sha256) is door:
            del self._by_token[door.spec.token_sha256]
        self._offences += door.violations.count
        self._frames += door.rate_limit.frames
        self._bytes += door.rate_limit.bytes
        door.path.unlink(missing_ok=True)
        # These turns of the loop let in whoever has connected already, to be refused: a connection that asyncio has
        # accepted when its server closes would stay open, unserved.
        for _ in range(3):
            await asyncio.sleep(0)
        door.server.close()
        door.cut()
        await asyncio.gather(*door.tasks, return_exceptions=True)

    async def close(self) -> None:
        for uid in list(self._doors):
            await self.close_door(uid)
        if self._alerts:
            await asyncio.wait(self._alerts, timeout=self._deadlines.flush)

    def statistics(self) -> GatewayStatistics:
        doors = self._doors.values()
        return GatewayStatistics(
            doors=len(doors),
            open_connections=sum(len(door.tasks) for door in doors),
            accepted=self._accepted,
            refused=self._refused,
            violations=self._offences + sum(door.violations.count for door in doors),
            frames=self._frames + sum(door.rate_limit.frames for door in doors),
            bytes=self._bytes + sum(door.rate_limit.bytes for door in doors),
        )

    def _tell(self, spec: DoorSpec, kind: str, text: str) -> None:
        log.warning("worker %s %s", spec.uid, text)
        task = asyncio.get_running_loop().create_task(self._raise(spec, kind, text))
        self._alerts.add(task)
        task.add_done_callback(self._alerts.discard)

    async def _raise(self, spec: DoorSpec, kind: str, text: str) -> None:
        try:
            async with asyncio.timeout(self._deadlines.flush):
                await self._alert(spec.org, Alert(kind, text, spec.uid))
        except (PostroomError, TimeoutError) as error:
            log.error("an alert could not be raised: %s: %s", text, error)

    async def _enter(
        self, door: _Door, transport: asyncio.Transport, first_line: FirstLine
    ) -> None:
        conn = door.conn()
        opened, verdict, reason = False, DENIED, "interrupted"
        wait = door.rate_limit.take(CONNECTION_COST, 0)
        if wait and door.rate_limit.flooded():
            conn.warn("flood of connections")
        try:
            proxy, rest = await self._admit(door, conn, first_line, wait)
            conn.write(verb="open")
            opened = True
            self._accepted += 1
            reason = await proxy(conn, transport, rest)
        except Silence as error:
            verdict, reason = ALLOWED, error.message
        except (PostroomError, TimeoutError, OSError) as error:
            reason = str(error) or type(error).__name__
        except asyncio.CancelledError:
            if not (
                door.closed or door.violations.barred
            ):  # this task ends by the gateway's own cut
                raise
            reason = "cut off" if door.violations.barred else "the door was closed"
        finally:
            cut(transport)
            self._refused += not opened and verdict == DENIED
            if opened or not wait:
                self._write_ending(door, conn, verdict, reason, opened=opened)
            else:  # one line each could push everything else out of the log
                door.unlisted += 1

    def _write_ending(
        self, door: _Door, conn: GatewayConnection, verdict: str, reason: str, *, opened: bool
    ) -> None:
        try:
            if opened:
                conn.write_ending(reason)
            else:
                if door.unlisted:
                    reason = f"{reason}; {door.unlisted} more before it, too fast to be listed"
                conn.write(verb="open", verdict=verdict, reason=reason)
                door.unlisted = 0
        except PostroomError as error:  # nothing passed, or the log has its begin
            log.error("%s", error)

    async def _admit(
        self, door: _Door, conn: GatewayConnection, first_line: FirstLine, wait: float
    ) -> tuple[Proxy, bytes]:
        if door.closed:  # accepted just before the door closed
            raise Unauthorized("the door is closed")
        if door.violations.barred:
            raise Unauthorized("the worker is cut off")
        most = door.spec.rates.connections
        if most and len(door.tasks) > most:
            raise ProtocolViolation(f"over {most} connections")
        if wait:
            await asyncio.sleep(wait)
        try:
            async with asyncio.timeout(self._deadlines.preface):
                line, rest = await first_line.line
        except TimeoutError as error:
            raise ProtocolViolation("no preface in time") from error
        first = Preface.decode(line)
        if not matches(first.token, door.spec.token_sha256):
            raise Unauthorized("the token is not this worker's")
        conn.protocol = first.protocol
        proxy = self._proxies.get(first.protocol)
        if proxy is None:
            raise ProtocolViolation(f"{first.protocol} is not served here")
        return proxy, rest
