"""A NATS client that does as little as can be, so that what is measured is not the client."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast
from urllib.parse import urlsplit

from postroom.identity.jwt import Credential
from postroom.protocol.preface import Preface

OnMessage = Callable[[bytes, bytes, bytes], None]
"""Takes subject, reply subject and body (with headers, if it has any)."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where and as whom to connect.

    Attributes:
        uid: of the agent.
        credential: its credential.
        url: of the server.
        door: path of the gateway's socket, "" to go to the server directly.
        token: that the door wants to see.
    """

    uid: str
    credential: Credential
    url: str
    door: str = ""
    token: str = ""


class Wire(asyncio.Protocol):
    """One connection; what is written in one turn of the loop is sent at once."""

    def __init__(self) -> None:
        self.on: OnMessage = lambda *_: None
        self.info: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._transport: asyncio.Transport
        self._pong: asyncio.Future[None] | None = None
        self._out: list[bytes] = []
        self._parts: list[bytes] = []
        self._have = self._need = 0
        self._room = asyncio.Event()
        self._room.set()

    @classmethod
    async def connect(cls, place: Place) -> Wire:
        """A connection that the server has let in."""
        loop = asyncio.get_running_loop()
        if place.door:
            transport, wire = await loop.create_unix_connection(cls, place.door)
            transport.write(Preface("nats", place.token).encode())
        else:
            parts = urlsplit(place.url)
            transport, wire = await loop.create_connection(
                cls, parts.hostname or "", parts.port or 4222
            )
        nonce = json.loads(await wire.info)["nonce"]
        options = {
            "jwt": place.credential.jwt,
            "sig": base64.b64encode(place.credential.sign(nonce.encode())).decode(),
            "verbose": False,
            "pedantic": False,
            "lang": "python",
            "version": "1",
            "protocol": 1,
            "headers": True,
            "no_responders": True,
        }
        wire.write(b"CONNECT %b\r\n" % json.dumps(options).encode())
        await wire.ping()
        return wire

    def write(self, data: bytes) -> None:
        """Send with the end of this turn."""
        if not self._out:
            asyncio.get_running_loop().call_soon(self._flush)
        self._out.append(data)

    async def room(self) -> None:
        """Wait until the other side has taken most of what was written."""
        await asyncio.sleep(0)
        await self._room.wait()

    async def ping(self) -> None:
        """Wait until everything that was written before has been read by the server."""
        self._pong = asyncio.get_running_loop().create_future()
        self.write(b"PING\r\n")
        await self._pong

    def close(self) -> None:
        """Hang up."""
        self._transport.abort()

    def _flush(self) -> None:
        self._transport.write(b"".join(self._out))
        self._out.clear()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Of asyncio."""
        self._transport = cast("asyncio.Transport", transport)

    def pause_writing(self) -> None:
        """Of asyncio."""
        self._room.clear()

    def resume_writing(self) -> None:
        """Of asyncio."""
        self._room.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """Of asyncio."""
        self._fail(ConnectionError(f"the connection was lost: {exc}"))
        self.lost.set_result(None)

    def data_received(self, data: bytes) -> None:
        """Of asyncio."""
        self._parts.append(data)
        self._have += len(data)
        if self._have < self._need:
            return
        data = b"".join(self._parts)
        position, length = 0, len(data)
        self._need = 0
        while position < length:
            end = data.find(b"\r\n", position)
            if end < 0:
                break
            fields = data[position:end].split(b" ")
            if fields[0] in {b"MSG", b"HMSG"}:
                stop = end + 2 + int(fields[-1])
                if stop + 2 > length:
                    self._need = stop + 2 - position
                    break
                replied = len(fields) == 5 + (fields[0] == b"HMSG")
                self.on(fields[1], fields[3] if replied else b"", data[end + 2 : stop])
                position = stop + 2
            else:
                self._line(fields[0], data[position:end])
                position = end + 2
        self._parts = [data[position:]] if position < length else []
        self._have = length - position

    def _line(self, verb: bytes, line: bytes) -> None:
        if verb == b"INFO" and not self.info.done():
            self.info.set_result(line[5:])
        elif verb == b"PING":
            self.write(b"PONG\r\n")
        elif verb == b"PONG" and self._pong is not None and not self._pong.done():
            self._pong.set_result(None)
        elif verb == b"-ERR":  # no measurement has any
            self._fail(RuntimeError(line.decode()))

    def _fail(self, error: Exception) -> None:
        for waited in (self.info, self._pong):
            if waited is not None and not waited.done():
                waited.set_exception(error)
