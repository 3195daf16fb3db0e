"""The host's side of the self-test: listeners that a sandboxed program must not be able to reach.

`CanaryServer` opens them, names them to the sandbox (`canaries`), and counts connections: so it also finds a sandbox
that reached one and kept silent.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import sys
import tempfile
from collections import Counter
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self, cast

from postroom.sandbox.policy import folder_for_sockets, home
from postroom.sandbox.selftest import Canaries, start_time

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
    def __init__(self, server: CanaryServer) -> None:
        self._server = server

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self._server.visits["udp"] += 1
        self._transport.sendto(data, addr)


class CanaryServer:
    """An async context manager that keeps the canaries open.

    outward: also listen on this machine's outward address, for the moment of a probe; long-lived canaries listen on
        loopback only.
    visits: how often the host saw a canary reached, by kind (`tcp` for all ways of it).
    gateway_visits: how often the stand-in gateway socket was reached (see `gateway`).
    """

    def __init__(self, *, outward: bool = True) -> None:
        self._outward = outward
        self.visits: Counter[str] = Counter()
        self.gateway_visits = 0
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
        )

    async def _open_tcp(self, stack: AsyncExitStack, address: str) -> None:
        sock = _bound(address, socket.SOCK_STREAM)
        self._tcp.append((address, sock.getsockname()[1]))
        visited = partial(self._visited, "tcp")
        stack.callback((await asyncio.start_server(visited, sock=sock)).close)

    async def _open_udp(self, stack: AsyncExitStack, address: str) -> None:
        sock = _bound(address, socket.SOCK_DGRAM)
        sock.setblocking(False)
        self._udp.append((address, sock.getsockname()[1]))
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(lambda: _Echo(self), sock=sock)
        stack.callback(transport.close)

    async def _open_unix(
        self, stack: AsyncExitStack, address: Path | str, *, is_gateway: bool = False
    ) -> None:
        kind = "abstract" if str(address).startswith("\0") else "socket"
        handler = self._gateway_visited if is_gateway else partial(self._visited, kind)
        stack.callback((await asyncio.start_unix_server(handler, address)).close)

    async def _visited(
        self, kind: str, _: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.visits[kind] += 1
        writer.close()

    async def _gateway_visited(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.gateway_visits += 1
        writer.close()
