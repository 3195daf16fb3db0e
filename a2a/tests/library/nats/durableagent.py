"""An agent without the SDK for tests of the durable binding, and the two ends of it on a server of the test's own."""

from __future__ import annotations

import asyncio
import base64
import json
import signal
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nats.aio.client import Client

from library.nats.connections import open_connection
from library.servers import NATS_SERVER, die_with_us
from postroom_a2a.binding.frames import Request, Response
from postroom_a2a.durable.client import DurableCaller
from postroom_a2a.durable.server import DurableServer
from postroom_a2a.errors import NotFound
from postroom_a2a.live.calling import new_id
from postroom_a2a.nats import WireConnection
from postroom_a2a.nats.jetstream import JetStream
from postroom_a2a.nats.mailbox import Mailbox
from postroom_a2a.operations import Call, Operations
from postroom_a2a.rpc import Code, RpcError

SUBJECT = "a2a.agent.echo.requests"
BEGINS = frozenset({"message/send", "message/stream", "SendMessage", "SendStreamingMessage"})
STREAMS = frozenset({"message/stream", "tasks/resubscribe", "SendStreamingMessage"})


@dataclass
class Agent:
    """Operations that do what a test tells them by the text of the message.

    `echo ...` answers at once; `hold` waits for `release`; `count N` streams N numbers; `fail` breaks; `big` answers
    with 2 MB. A cancel sets `cancelled` and releases what is held.
    """

    begun: list[str] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    release: asyncio.Event = field(default_factory=asyncio.Event)
    started: asyncio.Event = field(default_factory=asyncio.Event)
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    running: int = 0
    most: int = 0

    def streams(self, method: str) -> bool:
        return method in STREAMS

    def begins(self, method: str) -> bool:
        return method in BEGINS

    async def answer(self, call: Call) -> bytes:
        self.calls.append(call)
        if call.method == "tasks/cancel":
            self.cancelled.set()
            self.release.set()
            return b'{"cancelled":true}'
        if call.method == "tasks/get":
            return json.dumps({"id": call.params["id"]}).encode()
        if call.method not in BEGINS:
            raise RpcError(Code.METHOD_NOT_FOUND, f"Method not found: {call.method}")
        text = text_of(call)
        async with self._begin(text):
            if text.startswith("hold"):
                await self.release.wait()
            if text == "fail":
                raise RuntimeError("a secret of the agent")
            if text == "big":
                return json.dumps("x" * 2_000_000).encode()
            return json.dumps({"echo": text}).encode()

    async def stream(self, call: Call) -> AsyncGenerator[bytes, None]:
        self.calls.append(call)
        text = text_of(call)
        async with self._begin(text):
            if text.startswith("count"):
                for number in range(int(text.split()[1])):
                    yield str(number).encode()
            if text == "hold":
                yield b'"first"'
                await self.release.wait()
                yield b'"last"'
            if text == "big":
                yield b'"first"'
                yield json.dumps("x" * 2_000_000).encode()
            if text == "fail":
                yield b'"first"'
                raise RuntimeError("a secret of the agent")

    @asynccontextmanager
    async def _begin(self, text: str) -> AsyncGenerator[None]:
        self.begun.append(text)
        self.running += 1
        self.most = max(self.most, self.running)
        self.started.set()
        try:
            yield
        finally:
            self.running -= 1


def text_of(call: Call) -> str:
    return call.params["message"]["parts"][0]["text"]


def message(text: str) -> dict[str, Any]:
    part = {"kind": "text", "text": text}
    return {"message": {"kind": "message", "role": "user", "messageId": new_id(), "parts": [part]}}


def send(text: str, method: str = "message/send") -> Request:
    return Request(new_id(), method, message(text))


async def ask(caller: DurableCaller, text: str, timeout: float = 10.0) -> Any:
    """The result of a call that must go well."""
    response = await caller.call(send(text), timeout=timeout)
    assert response.error is None, response.error
    return response.result


async def collect(caller: DurableCaller, request: Request, timeout: float = 10.0) -> list[Response]:
    return [response async for response in caller.stream(request, timeout=timeout)]


class Server:
    """A nats-server of the test's own that can be ended and started again on its port and its folder."""

    def __init__(self, folder: Path, *, jetstream: bool = True, config: str = "") -> None:
        self._folder = folder
        self._jetstream = jetstream
        self._config = config
        self._port = -1
        self._process: asyncio.subprocess.Process | None = None
        self.url = ""

    async def start(self) -> None:
        for old in self._folder.glob("*.ports"):
            old.unlink()
        arguments = ("--addr", "127.0.0.1", "--port", str(self._port), "--store_dir", self._folder)
        self._process = await asyncio.create_subprocess_exec(
            NATS_SERVER,
            *arguments,
            *(("--jetstream",) if self._jetstream else ()),
            *self._configured(),
            "--ports_file_dir",
            self._folder,
            stderr=asyncio.subprocess.DEVNULL,
            preexec_fn=die_with_us,
        )
        async with asyncio.timeout(10):
            # The server gives no other sign.
            while not (files := list(self._folder.glob("*.ports"))) or not files[0].read_text():  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        self.url = json.loads(files[0].read_text())["nats"][0]
        self._port = int(self.url.rsplit(":", 1)[1])

    def _configured(self) -> tuple[str | Path, ...]:
        if not self._config:
            return ()
        self._folder.mkdir(exist_ok=True)
        path = self._folder / "server.conf"
        path.write_text(self._config)
        return ("--config", path)

    async def stop(self, *, kill: bool = False) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
            await self._process.wait()

    async def restart(self, *, kill: bool = False) -> None:
        await self.stop(kill=kill)
        await self.start()

    async def restart_with(self, *, jetstream: bool) -> None:
        self._jetstream = jetstream
        await self.restart()


@dataclass
class Desk:
    """A nats-server of the test's own, and what the test opens on it."""

    server: Server
    stack: AsyncExitStack

    async def connect(self, **options: Any) -> Client | WireConnection:
        options = {"reconnect_time_wait": 0.05, "max_reconnect_attempts": -1, **options}
        client = await open_connection(self.server.url, **options)
        self.stack.push_async_callback(client.close)
        return client

    async def jetstream(self) -> JetStream:
        return JetStream(Mailbox(await self.connect()))

    async def serve(
        self, agent: Operations, subject: str = SUBJECT, **options: Any
    ) -> DurableServer:
        options = {"drain": 2.0, **options}
        server = DurableServer(await self.connect(), subject, agent, **options)
        return await self.stack.enter_async_context(server)

    async def caller(self, subject: str = SUBJECT, **options: Any) -> DurableCaller:
        caller = DurableCaller(await self.connect(), subject, **options)
        self.stack.push_async_callback(caller.close)
        return caller


@asynccontextmanager
async def open_desk(
    folder: Path, *, jetstream: bool = True, config: str = ""
) -> AsyncGenerator[Desk]:
    server = Server(folder, jetstream=jetstream, config=config)
    await server.start()
    try:
        async with AsyncExitStack() as stack:
            yield Desk(server, stack)
    finally:
        await server.stop(kill=True)


async def frames_of(js: JetStream, subject: str, stream: str = "A2A_RESPONSES") -> list[bytes]:
    """What a stream has on a subject, in order."""
    found: list[bytes] = []
    sequence = 1
    while True:
        try:
            answer = await js.api(
                f"STREAM.MSG.GET.{stream}", {"seq": sequence, "next_by_subj": subject}
            )
        except NotFound:
            return found
        found.append(base64.b64decode(answer["message"].get("data", "")))
        sequence = answer["message"]["seq"] + 1


async def wait_for(true: Callable[[], object]) -> None:
    """Until something that happens in another task is so."""
    async with asyncio.timeout(20):
        while not true():  # noqa: ASYNC110
            await asyncio.sleep(0.005)
