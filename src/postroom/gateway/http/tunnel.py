"""A CONNECT tunnel: opened for TLS to the host that the request named, and for nothing else.

The host is the server name in the TLS ClientHello (RFC 8446, 4.1.2), whose bytes come in pieces; nothing is decrypted.
`ClientHello` reads what a server will read, and refuses whatever two readers could read differently: two extensions of
one kind, two names, lengths that do not fit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import h11

from postroom.errors import Forbidden, InvalidInput, ProtocolViolation
from postroom.gateway.http.exchange import RequestRecord, Timeouts
from postroom.http.connection import CHUNK, HttpConnection
from postroom.protocol.hosts import canonical_host, is_address

HELLO_TIMEOUT = 15.0
"""Seconds for a whole ClientHello."""

MAX_HELLO = 16 * 1024
"""Bytes of a ClientHello; with post-quantum keys one has about 2 KiB."""

MAX_RECORDS = 16
"""Records that it may be spread over: each further piece means that all are read again."""

HANDSHAKE, CLIENT_HELLO = 22, 1
MAX_RECORD = 16 * 1024
SERVER_NAME, HOST_NAME = 0, 0
ENCRYPTED_HELLO = 0xFE0D


class ClientHello:
    """Collects the records of one ClientHello.

    Attributes:
        raw: all bytes so far, to be forwarded unchanged.
    """

    def __init__(self) -> None:
        self.raw = b""

    def feed(self, data: bytes) -> str | None:
        """Take bytes; return the canonical server name once the ClientHello is whole, else None.

        Raises:
            ProtocolViolation: not TLS, no server name, or readable in more than one way.
        """
        self.raw += data
        message = self._message()
        if message is None:
            if len(self.raw) > MAX_HELLO:
                raise ProtocolViolation("the ClientHello is too long")
            return None
        return _server_name(message)

    def _message(self) -> bytes | None:
        """The body of the handshake message, which may be spread over several records."""
        at, message = 0, b""
        for _ in range(MAX_RECORDS):
            head = self.raw[at : at + 5]
            if head and (head[0] != HANDSHAKE or (len(head) > 1 and head[1] != 3)):
                raise ProtocolViolation("what comes through the tunnel is not TLS")
            if len(head) < 5:
                return None
            size = int.from_bytes(head[3:5], "big")
            if not 0 < size <= MAX_RECORD:
                raise ProtocolViolation("a TLS record has an impossible length")
            message += self.raw[at + 5 : at + 5 + size]
            at += 5 + size
            if message and message[0] != CLIENT_HELLO:
                raise ProtocolViolation("TLS begins with a ClientHello")
            if len(message) >= 4:
                wanted = 4 + int.from_bytes(message[1:4], "big")
                if wanted > MAX_HELLO:
                    raise ProtocolViolation("the ClientHello is too long")
                if len(message) > wanted:
                    raise ProtocolViolation("something follows the ClientHello in its record")
                if len(message) == wanted:
                    return message[4:]
            if at > len(self.raw):
                return None
        raise ProtocolViolation("the ClientHello is in too many records")


class _Fields:
    """Reads fields with a length before them."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, size: int) -> bytes:
        found = self._data[self._at : self._at + size]
        if len(found) < size:
            raise ProtocolViolation("the ClientHello is malformed")
        self._at += size
        return found

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def vector(self, length: int) -> bytes:
        return self.take(self.number(length))

    @property
    def more(self) -> bool:
        return self._at < len(self._data)


def _server_name(body: bytes) -> str:
    hello = _Fields(body)
    hello.take(2 + 32)  # version, random
    hello.vector(1)  # session id
    hello.vector(2)  # cipher suites
    hello.vector(1)  # compression
    extensions = _Fields(hello.vector(2) if hello.more else b"")
    if hello.more:
        raise ProtocolViolation("the ClientHello is malformed")
    names: dict[int, bytes] = {}
    while extensions.more:
        kind = extensions.number(2)
        if kind in names:
            raise ProtocolViolation("the ClientHello has an extension twice")
        names[kind] = extensions.vector(2)
    if ENCRYPTED_HELLO in names:
        raise ProtocolViolation("the ClientHello hides which server it is for (ECH)")
    if SERVER_NAME not in names:
        raise ProtocolViolation("the ClientHello names no server (SNI)")
    return _host_name(names[SERVER_NAME])


def _host_name(extension: bytes) -> str:
    outer = _Fields(extension)
    listed = _Fields(outer.vector(2))
    kind, name = listed.number(1), listed.vector(2)
    if kind != HOST_NAME or listed.more or outer.more:
        raise ProtocolViolation("the ClientHello names more than one server (SNI)")
    try:
        host = canonical_host(name.decode("ascii"))
    except (InvalidInput, UnicodeDecodeError) as error:
        raise ProtocolViolation("the server name (SNI) is not a host name") from error
    if is_address(host):
        raise ProtocolViolation("the server name (SNI) is an address, not a name")
    return host


class Tunnel:
    """Passes bytes between the sandbox and a host, once the sandbox has begun TLS with that host.

    Args:
        timeouts: `answer` is how long the tunnel may stay silent.
    """

    def __init__(
        self,
        near: HttpConnection,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        timeouts: Timeouts,
    ) -> None:
        self._near = near
        self._reader = reader
        self._writer = writer
        self._timeouts = timeouts
        self._out = 0
        self._in = 0

    async def run(self, host: str, record: RequestRecord) -> None:
        """Open the tunnel and pass bytes until it ends.

        Raises:
            PostroomError: no TLS, or TLS for another host; nothing was passed on.
        """
        try:
            first = await self._first(host)
        except ProtocolViolation as error:
            self._writer.transport.abort()
            refused = Forbidden(error.message)
            record.denied(refused)
            raise refused from error
        except BaseException:
            self._writer.transport.abort()
            record.answered(0, 0, "the tunnel ended before TLS began")
            raise
        reason = "the tunnel was cut"
        try:
            reason = await self._pump(first)
        finally:
            self._writer.transport.abort()
            record.answered(200, self._out + self._in, reason)

    async def _first(self, host: str) -> bytes:
        """The ClientHello, and what came with it."""
        near = self._near
        await near.next_event(self._timeouts.head)  # the end of the CONNECT
        await near.send(
            h11.Response(status_code=200, reason=b"Connection established", headers=[]),
            self._timeouts.body,
        )
        hello = ClientHello()
        name = hello.feed(near.http.trailing_data[0])
        try:
            async with asyncio.timeout(HELLO_TIMEOUT):
                while name is None:
                    data = await near.reader.read(CHUNK)
                    if not data:
                        raise ProtocolViolation("the tunnel ended before TLS began")
                    name = hello.feed(data)
        except TimeoutError as error:
            raise ProtocolViolation("no ClientHello in time") from error
        if name != host:
            raise ProtocolViolation(f"the tunnel is for {host}, TLS in it for {name}")
        return hello.raw

    async def _pump(self, first: bytes) -> str:
        """Pass bytes until both sides have ended; returns why it ended otherwise, else ""."""
        near = self._near
        self._out += len(first)
        self._writer.write(first)
        try:
            async with asyncio.timeout(self._timeouts.answer) as idle, asyncio.TaskGroup() as ways:
                ways.create_task(self._copy(near.reader, self._writer, idle, self._sent))
                ways.create_task(self._copy(self._reader, near.writer, idle, self._received))
        except TimeoutError:
            return "nothing passed for too long"
        return ""

    def _sent(self, size: int) -> None:
        self._out += size

    def _received(self, size: int) -> None:
        self._in += size

    async def _copy(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        idle: asyncio.Timeout,
        count: Callable[[int], None],
    ) -> None:
        loop = asyncio.get_running_loop()
        try:
            while (data := await reader.read(CHUNK)) and not writer.transport.is_closing():
                writer.write(data)
                count(len(data))
                await writer.drain()
                idle.reschedule(loop.time() + self._timeouts.answer)
            if writer.can_write_eof():
                writer.write_eof()
        except OSError:  # the other direction ends with it
            self._writer.transport.abort()
            self._near.abort()
