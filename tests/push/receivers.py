"""Receivers of pushes, on real sockets: a test says how each of them answers."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import struct
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from standardwebhooks import Webhook

SECONDS = 20.0


@dataclass
class Got:
    """A request that came; `headers` have names in lower case."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def said(self) -> Any:
        return json.loads(self.body)

    @property
    def what(self) -> str:
        """The state that it tells, or the text of its artifact."""
        if "artifactUpdate" in self.said:
            return self.said["artifactUpdate"]["artifact"]["parts"][0]["text"]
        status = self.said["statusUpdate"]["status"]
        return status["state"].removeprefix("TASK_STATE_").lower()

    def verify(self, secret: str) -> Any:
        """What the reference library of Standard Webhooks makes of it; raises where the signature is not right."""
        return Webhook(secret).verify(self.body, self.headers)


OK = b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n"
HANG = b""
RESET = b"reset"
"""Instead of an answer: the connection ends in the middle, when the whole request was read."""


def answering(status: int, **headers: str) -> bytes:
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status} x\r\ncontent-length: 0\r\n{lines}\r\n".encode()


@dataclass
class Receiver:
    """A receiver.

    Attributes:
        answers: bytes of the next answers, then of every further one the last; `HANG` answers nothing, `RESET` neither.
        got: what came, in order, also what was not answered.
    """

    port: int = 0
    answers: list[bytes] = field(default_factory=lambda: [OK])
    got: list[Got] = field(default_factory=list)
    open: int = 0
    _came: asyncio.Condition = field(default_factory=asyncio.Condition)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    @property
    def what(self) -> list[str]:
        return [got.what for got in self.got]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            first, *lines = head.strip().split("\r\n")
            headers = {
                name.lower(): value for name, value in (line.split(": ", 1) for line in lines)
            }
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            async with self._came:
                answer = self.answers[0] if len(self.answers) == 1 else self.answers.pop(0)
                self.got.append(Got(first.split(" ")[1], headers, body))
                self._came.notify_all()
            if answer == HANG:
                await reader.read()  # until the other side has gone
            elif answer == RESET:
                at_once = struct.pack("ii", 1, 0)
                writer.get_extra_info("socket").setsockopt(
                    socket.SOL_SOCKET, socket.SO_LINGER, at_once
                )
                writer.transport.abort()
            else:
                writer.write(answer)
                await writer.drain()
        except (OSError, EOFError):
            pass
        finally:
            writer.close()
            async with self._came:
                self.open -= 1
                self._came.notify_all()

    async def until(self, number: int) -> list[Got]:
        """Wait until that many requests have come; returns all."""
        return await self.when(lambda: len(self.got) >= number)

    async def when(self, condition: Any) -> list[Got]:
        async with asyncio.timeout(SECONDS), self._came:
            await self._came.wait_for(condition)
            return self.got


@asynccontextmanager
async def receiver(
    *answers: bytes, port: int = 0, tls: ssl.SSLContext | None = None
) -> AsyncGenerator[Receiver]:
    """A receiver that answers so, by default that it has taken everything."""
    found = Receiver(answers=list(answers) or [OK])
    server = await asyncio.start_server(found.serve, "127.0.0.1", port, ssl=tls)
    found.port = server.sockets[0].getsockname()[1]
    try:
        yield found
    finally:
        server.close()
