"""The host's side of the self-test: listeners that a sandboxed program must not be able to reach.

`CanaryServer` opens them, names them to the sandbox (`canaries`), and counts visits: so it also finds a sandbox that
reached one and kept silent.

Any account of this machine finds the canaries in /proc/net and can touch them. So a visit counts only with the secret
that the self-test was given; any other is a stranger's, and is logged. A stranger can also leave a listener no room for
others: then what met silence there is no proof (`doubts`).
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import struct
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self, cast

from postroom.observe import get_logger
from postroom.sandbox.policy import folder_for_sockets, home
from postroom.sandbox.selftest import Canaries, WallReport, start_time

log = get_logger(__name__)

PATIENCE = 1.0
"""Seconds that a visitor has to show the secret; the self-test does so at once."""
BACKLOG = 128
SECRET_LENGTH = 32
"""Characters of the secret."""
MOST_VISITORS = 64
"""Visitors that are heard at a time; the next one is sent away, as a stranger."""
MOST_LOOKS = 20
"""Strangers' visits that are looked into for the log, for one server."""

# Linux, linux/sock_diag.h: numbers about a socket's memory; the ninth counts what found no room in its queue.
_MEMORY, _MEMORY_NUMBERS, _DROPS = 55, struct.Struct("=9I"), 8
_CREDENTIALS = struct.Struct("=iii")

# Addresses for documentation (RFC 5737, RFC 3849): connecting a datagram socket to one sends nothing
# and shows which own address the machine would use for the outside.
_FOREIGN = {socket.AF_INET: "192.0.2.1", socket.AF_INET6: "2001:db8::1"}


def own_addresses() -> tuple[str, ...]:
    """The loopback addresses and, if any, the outward address, for both IP versions."""
    found = ["127.0.0.1"]
    if _can_bind("::1"):
        found.append("::1")
    for family, foreign in _FOREIGN.items():
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as sock:
                sock.connect((foreign, 9))
                address = sock.getsockname()[0]
        except OSError:
            continue
        if address not in found and "%" not in address and _can_bind(address):
            found.append(address)
    return tuple(found)


def _can_bind(address: str) -> bool:
    try:
        _bound(address, socket.SOCK_STREAM).close()
    except OSError:
        return False
    return True


def _bound(address: str, kind: socket.SocketKind) -> socket.socket:
    sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, kind)
    try:
        sock.bind((address, 0))
    except OSError:
        sock.close()
        raise
    return sock


class _Echo(asyncio.DatagramProtocol):
    """Answers who has the secret."""

    def __init__(self, server: CanaryServer) -> None:
        self._server = server

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        if self._server.judge("udp", data, partial(_owner, "udp", addr)):
            self._transport.sendto(data, addr)


class _Connection:
    """One connection, heard until it has shown the secret, or could have."""

    def __init__(self, server: CanaryServer, kind: str, sock: socket.socket) -> None:
        self._server, self._kind, self._sock = server, kind, sock
        self._said = b""
        self._loop = asyncio.get_running_loop()
        self.over: asyncio.Future[None] = self._loop.create_future()
        self._late = self._loop.call_later(PATIENCE, self.end)
        sock.setblocking(False)
        self._loop.add_reader(sock, self._read)

    def _read(self) -> None:
        try:
            data = self._sock.recv(SECRET_LENGTH - len(self._said))
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._said += data
        if not data or len(self._said) == SECRET_LENGTH:
            self.end()

    def end(self) -> None:
        """Judge it by what it said up to now."""
        if self.over.done():
            return
        self.over.set_result(None)
        self._late.cancel()
        self._loop.remove_reader(self._sock)
        self._server.judge(self._kind, self._said, partial(_peer, self._sock))
        self._server.visitors.discard(self)
        self._sock.close()


def _owner(kind: str, address: tuple[str, int]) -> str:
    """Who has the socket with that address of this machine, for people; "" if unknown."""
    with suppress(OSError, ValueError, IndexError):
        for name in (kind, f"{kind}6"):
            for line in Path(f"/proc/net/{name}").read_text(encoding="ascii").splitlines()[1:]:
                fields = line.split()
                # Without an inode the socket is closed already, and nobody's.
                if int(fields[1].rpartition(":")[2], 16) == address[1] and fields[9] != "0":
                    return f"uid {fields[7]}"
    return ""


def _peer(sock: socket.socket) -> str:
    """Who is at the other end of a connection, for people; "" if unknown."""
    with suppress(OSError, AttributeError):  # AttributeError: not on macOS
        if sock.family != socket.AF_UNIX:
            return _owner("tcp", sock.getpeername()[:2])
        found = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        pid, uid, _ = _CREDENTIALS.unpack(found)
        return f"uid {uid}, process {pid}"
    return ""


def _dropped(sock: socket.socket) -> int:
    """How much found no room in the queue of a listener; 0 where the kernel does not say."""
    with suppress(OSError):
        found = sock.getsockopt(socket.SOL_SOCKET, _MEMORY, _MEMORY_NUMBERS.size)
        if len(found) == _MEMORY_NUMBERS.size:
            return int(_MEMORY_NUMBERS.unpack(found)[_DROPS])
    return 0


class CanaryServer:
    """An async context manager that keeps the canaries open.

    outward: also listen on this machine's outward address, for the moment of a probe; long-lived canaries listen on
        loopback only.
    visits: how often the host saw a canary reached with the secret, by kind (`tcp` for all ways of it).
    strangers: how often somebody came without it, by kind.
    visitors: the connections that are heard now.
    gateway_visits: how often the stand-in gateway socket was reached (see `gateway`).
    """

    def __init__(self, *, outward: bool = True) -> None:
        self._outward = outward
        self.visits: Counter[str] = Counter()
        self.strangers: Counter[str] = Counter()
        self.gateway_visits = 0
        self._secret = secrets.token_hex(SECRET_LENGTH // 2)
        self.visitors: set[_Connection] = set()
        self._named: set[str] = set()
        self._inet: list[socket.socket] = []
        self._stack = AsyncExitStack()
        self._tcp: list[tuple[str, int]] = []
        self._udp: list[tuple[str, int]] = []
        self._abstract = f"postroom-canary-{secrets.token_hex(8)}"

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            folder = tempfile.TemporaryDirectory(
                prefix="postroom-canary-", dir=folder_for_sockets()
            )
            self.folder = Path(stack.enter_context(folder))
            addresses = own_addresses()
            for address in addresses if self._outward else addresses[:1]:
                await self._open_tcp(stack, address)
                await self._open_udp(stack, address)
            await self._open_unix(stack, self.folder / "other.sock")
            await self._open_unix(stack, self.gateway, is_gateway=True)
            (self.folder / "file").touch(mode=0o600)
            if sys.platform == "linux":
                await self._open_unix(stack, f"\0{self._abstract}")
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stack.aclose()
        for visitor in list(self.visitors):
            visitor.end()

    @property
    def gateway(self) -> Path:
        """A stand-in for the gateway's socket in a probe: the one thing that must be reached."""
        return self.folder / "gateway.sock"

    def canaries(self, gateway: str) -> Canaries:
        """The canaries for a sandbox that sees its gateway socket at the path `gateway`."""
        linux = sys.platform == "linux"
        watched = (self.folder, self.folder / "file", *filter(None, [home()]))
        return Canaries(
            tcp=tuple(self._tcp),
            udp=tuple(self._udp),
            abstract=(self._abstract,) if linux else (),
            sockets=(str(self.folder / "other.sock"),),
            files={str(p): (p.stat().st_dev, p.stat().st_ino) for p in watched if p.exists()},
            process=(os.getpid(), start_time(os.getpid())) if linux else None,
            gateway=gateway,
            secret=self._secret,
        )

    async def settle(self) -> None:
        """Hear all visitors that are there now to their end, for the count."""
        if visits := [visitor.over for visitor in self.visitors]:
            await asyncio.wait(visits, timeout=2 * PATIENCE)

    def doubts(self, report: WallReport) -> bool:
        """Whether what met silence may have been a way out, since a listener had no room for a visit."""
        silent = any(canary.silent for canary in report.canaries)
        return silent and any(map(_dropped, self._inet))

    def judge(self, kind: str, said: bytes, owner: Callable[[], str]) -> bool:
        """Count a visit; whether it was the self-test's. `owner` finds out who else it was."""
        if secrets.compare_digest(said, self._secret.encode()):
            self.visits[kind] += 1
            return True
        self.strangers[kind] += 1
        if self.strangers.total() <= MOST_LOOKS:
            line = f"{kind}, by {owner() or 'an unknown account'}"
            if line not in self._named:
                log.warning("a stranger has touched a canary of the wall test: %s", line)
            self._named.add(line)
        return False

    async def _open_tcp(self, stack: AsyncExitStack, address: str) -> None:
        sock = _bound(address, socket.SOCK_STREAM)
        stack.callback(sock.close)
        self._tcp.append((address, sock.getsockname()[1]))
        self._inet.append(sock)
        self._listen(stack, "tcp", sock)

    async def _open_udp(self, stack: AsyncExitStack, address: str) -> None:
        sock = _bound(address, socket.SOCK_DGRAM)
        sock.setblocking(False)
        self._udp.append((address, sock.getsockname()[1]))
        self._inet.append(sock)
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(lambda: _Echo(self), sock=sock)
        stack.callback(transport.close)

    async def _open_unix(
        self, stack: AsyncExitStack, address: Path | str, *, is_gateway: bool = False
    ) -> None:
        if is_gateway:
            server = await asyncio.start_unix_server(self._gateway_visited, address)
            stack.callback(server.close)
            return
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        stack.callback(sock.close)
        sock.bind(str(address))
        self._listen(stack, "abstract" if str(address).startswith("\0") else "socket", sock)

    def _listen(self, stack: AsyncExitStack, kind: str, sock: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        sock.setblocking(False)
        sock.listen(BACKLOG)
        loop.add_reader(sock, self._accept, kind, sock)
        stack.callback(loop.remove_reader, sock)

    def _accept(self, kind: str, listener: socket.socket) -> None:
        try:
            sock, _ = listener.accept()
        except (BlockingIOError, ConnectionError):
            return
        except OSError:  # this process has no descriptor left: ask again when it may have some
            loop = asyncio.get_running_loop()
            loop.remove_reader(listener)
            loop.call_later(PATIENCE, self._go_on, kind, listener)
            return
        if len(self.visitors) < MOST_VISITORS:
            self.visitors.add(_Connection(self, kind, sock))
            return
        self.judge(kind, b"", partial(_peer, sock))
        sock.close()

    def _go_on(self, kind: str, listener: socket.socket) -> None:
        if listener.fileno() >= 0:
            asyncio.get_running_loop().add_reader(listener, self._accept, kind, listener)

    async def _gateway_visited(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.gateway_visits += 1
        writer.close()
