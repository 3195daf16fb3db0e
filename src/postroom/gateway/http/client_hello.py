"""The TLS ClientHello and the server name in it (RFC 8446, 4.1.2).

The bytes come in pieces; nothing is decrypted. It reads what a server will read, and refuses whatever two readers
could read differently: two extensions of one kind, two names, lengths that do not fit.
"""

from __future__ import annotations

from postroom.errors import InvalidInput, ProtocolViolation
from postroom.protocol.hosts import canonical_host, is_address

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
