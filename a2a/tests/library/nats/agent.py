"""An agent for the tests of the binding that needs no SDK: each method does one thing that a test wants to see."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nats
from nats.aio.client import Client

from library.nats.connections import open_connection
from library.servers import open_server
from postroom_a2a.binding.frames import Flow, Request, Response
from postroom_a2a.ecma_json import dumps
from postroom_a2a.live.calling import FLOW, CoreCaller, new_id
from postroom_a2a.live.serving import CoreServer
from postroom_a2a.operations import Call
from postroom_a2a.rpc import Code, RpcError

SUBJECT = "a2a.agent.plain.rpc"
TIMEOUT = 20.0


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
        asked = (call.params or {}) if not call.binary else {}
        count = asked.get("count", 3)
        more = (
            {"text": "x" * asked["bytes"]} if call.method == "stream" and "bytes" in asked else {}
        )
        try:
            if call.method == "stream-refuse":
                raise RpcError(Code.TASK_NOT_FOUND, "Task not found: nope")
            for index in range(count):
                self.yielded += 1
                yield b"\x08" + bytes([index]) if call.binary else dumps({"event": index, **more})
            if call.method == "stream-wait":
                await self._wait(call)
            if call.method == "stream-raise":
                raise ValueError("a secret of the agent")
            if call.method == "stream-large":
                yield b'"' + b"x" * call.params["bytes"] + b'"'
        finally:
            self.closed.set()


@dataclass
class Scene:
    """A served agent and a caller of it, each on a connection of its own, over a plain nats-server.

    `serving` and `calling` are further connections, of nats-py, for what a test does besides.
    """

    url: str
    agent: PlainAgent
    server: CoreServer
    caller: CoreCaller
    serving: Client
    calling: Client

    def ask(self, method: str, params: Any = None, **options: Any) -> Request:
        """A request with a new id."""
        return Request(new_id(), method, params, **options)

    async def call(self, method: str, params: Any = None, **options: Any) -> Response:
        """Its answer."""
        return await self.caller.call(self.ask(method, params, **options), timeout=TIMEOUT)

    def stream(self, method: str, params: Any = None) -> AsyncGenerator[Response, None]:
        """Its stream."""
        return self.caller.stream(self.ask(method, params), timeout=TIMEOUT)


@asynccontextmanager
async def scene(
    folder: Path,
    *,
    jetstream: bool = False,
    config: Path | None = None,
    flow: Flow = FLOW,
    idle: float = 0.0,
    **options: Any,
) -> AsyncGenerator[Scene]:
    """A scene; JetStream is off, since nothing here needs it."""
    agent = PlainAgent()
    async with (
        open_server(folder, jetstream=jetstream, config=config) as url,
        connected(url) as serving,
        connected(url) as calling,
        await open_connection(url) as at_server,
        await open_connection(url) as at_caller,
        CoreServer(at_server, SUBJECT, agent, **options) as server,
    ):
        caller = CoreCaller(at_caller, SUBJECT, flow=flow, idle=idle)
        try:
            yield Scene(url, agent, server, caller, serving, calling)
        finally:
            agent.release.set()
            await caller.close()


@asynccontextmanager
async def connected(url: str, **options: object) -> AsyncGenerator[Client]:
    """A connection of nats-py."""
    client = await nats.connect(url, **options)
    try:
        yield client
    finally:
        await client.close()
