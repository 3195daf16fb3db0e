"""An agent for the tests of the binding that needs no SDK: each method does one thing that a test wants to see."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import nats
from nats.aio.client import Client

from postroom.a2a.nats.jsjson import dumps
from postroom.a2a.operations import Call
from postroom.a2a.rpc import Code, RpcError


class PlainAgent:
    """`Operations` made by hand.

    Attributes:
        calls: that came in.
        cancelled: methods whose call was cancelled.
        yielded: events that streams have given.
        closed: set when a stream was closed.
        running: set when a call waits.
        release: lets what waits go on.
    """

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.cancelled: list[str] = []
        self.yielded = 0
        self.closed = asyncio.Event()
        self.running = asyncio.Event()
        self.release = asyncio.Event()

    def streams(self, method: str) -> bool:
        return method.startswith("stream")

    def begins(self, method: str) -> bool:
        return method in {"wait", "echo", "raise", "large", "refuse", "stubborn"}

    async def answer(self, call: Call) -> bytes:
        self.calls.append(call)
        match call.method:
            case "echo":
                return call.params if call.binary else dumps(call.params)
            case "get" | "cancel":
                return b'{"got":true}'
            case "wait":
                return await self._wait(call)
            case "stubborn":
                with_patience = asyncio.create_task(self.release.wait())
                self.running.set()
                while not with_patience.done():
                    try:
                        await asyncio.shield(with_patience)
                    except asyncio.CancelledError:
                        self.cancelled.append(call.method)
                return b"1"
            case "large":
                return b'"' + b"x" * call.params["bytes"] + b'"'
            case "raise":
                raise ValueError("a secret of the agent")
            case "refuse":
                raise RpcError(Code.TASK_NOT_FOUND, "Task not found: nope")
        raise RpcError(Code.METHOD_NOT_FOUND, f"Method not found: {call.method}")

    async def _wait(self, call: Call) -> bytes:
        self.running.set()
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            self.cancelled.append(call.method)
            raise
        return b'{"done":true}'

    async def stream(self, call: Call) -> AsyncGenerator[bytes, None]:
        self.calls.append(call)
        count = (call.params or {}).get("count", 3) if not call.binary else 3
        try:
            if call.method == "stream-refuse":
                raise RpcError(Code.TASK_NOT_FOUND, "Task not found: nope")
            for index in range(count):
                self.yielded += 1
                yield b"\x08" + bytes([index]) if call.binary else dumps({"event": index})
            if call.method == "stream-wait":
                await self._wait(call)
            if call.method == "stream-raise":
                raise ValueError("a secret of the agent")
            if call.method == "stream-large":
                yield b'"' + b"x" * call.params["bytes"] + b'"'
        finally:
            self.closed.set()


@asynccontextmanager
async def connected(url: str, **options: object) -> AsyncGenerator[Client]:
    """A connection of nats-py."""
    client = await nats.connect(url, **options)
    try:
        yield client
    finally:
        await client.close()
