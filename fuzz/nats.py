"""Fuzzes what reads NATS at a worker's door: both parsers, INFO and CONNECT. Run it with `make fuzz`.

A finding is an exception that is none of ours, or a stream that says something else when it comes in two pieces.
"""

from __future__ import annotations

import contextlib
import sys

import atheris

with atheris.instrument_imports():
    from postroom.errors import PostroomError, ProtocolViolation
    from postroom.gateway.nats.audit_records import message_id
    from postroom.gateway.nats.client_stream import ClientStream
    from postroom.gateway.nats.greeting import read_info, rewritten_connect, rewritten_info
    from postroom.gateway.nats.headers import Headers
    from postroom.gateway.nats.rights import Rights
    from postroom.gateway.nats.server_stream import ServerStream

OWN = "a" * 32
RIGHTS = Rights(OWN, ("main",))
HEADERS = Headers(f"worker.{OWN}.tasks.".encode())


class Noted:
    """Judges by the rights of one worker, and remembers what it was asked."""

    def __init__(self) -> None:
        self.said: list[tuple[object, ...]] = []

    def connect(self, options: bytes) -> bytes:
        self.said.append(("CONNECT", options))
        with contextlib.suppress(PostroomError):
            rewritten_connect(options, own=OWN, nonce="x", sign=lambda nonce: nonce)
        return b"CONNECT\r\n"

    def publish(
        self, subject: bytes, reply: bytes, header: int, size: int, data: bytes, start: int
    ) -> bool:
        self.said.append(("PUB", subject, reply, header, size))
        if header:
            message_id(data, start, header)
            why = HEADERS.refusal(data, start, header, task=True)
            self.said.append(("HEADERS", why))
        return RIGHTS.publish(subject) is not None

    def subscribe(self, subject: bytes, queue: bytes, sid: bytes) -> bool:
        self.said.append(("SUB", subject, queue, sid))
        return RIGHTS.subscribe(subject, queue)

    def unsubscribe(self, sid: bytes, most: int) -> bool:
        self.said.append(("UNSUB", sid, most))
        return True

    def inform(self, info: bytes) -> bytes:
        self.said.append(("INFO", info))
        return rewritten_info(read_info(info))

    def message(
        self, subject: bytes, reply: bytes, header: int, size: int, data: bytes, start: int
    ) -> None:
        self.said.append(("MSG", subject, reply, header, size))
        if header:
            message_id(data, start, header)

    def error(self, text: bytes) -> None:
        self.said.append(("-ERR", text))


def _read(stream: ClientStream | ServerStream, pieces: list[bytes]) -> bytes:
    return b"".join(bytes(each) for piece in pieces for each in stream.feed(piece))


def one(data: bytes) -> None:
    """One input: the first byte says where it is cut, the rest is the stream."""
    if not data:
        return
    cut, stream = data[0] * len(data) // 256, data[1:]
    for kind, lead in ((ClientStream, b"CONNECT {}\r\n"), (ClientStream, b""), (ServerStream, b"")):
        whole, pieces = Noted(), Noted()
        first, second = kind(whole), kind(pieces)
        at_once = _read(first, [lead + stream])
        in_pieces = _read(second, [lead, stream[:cut], stream[cut:]])
        if whole.said != pieces.said or first.broken != second.broken:
            raise AssertionError(whole.said, pieces.said)
        if not first.broken and at_once != in_pieces:
            raise AssertionError(at_once, in_pieces)
    with contextlib.suppress(ProtocolViolation):
        rewritten_info(read_info(stream))


if __name__ == "__main__":
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()
