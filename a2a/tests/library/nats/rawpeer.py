"""Peers of the wire `a2a-nats/1` as strict as the TypeScript ones, over a bare socket: no line of the binding is used.

`Wire` speaks the protocol of NATS and keeps every line of it. `RawClient` sends what the TypeScript client sends and
fails where the wire's table says that it fails; `RawServer` answers as its server does. Their ids are integers from 1.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

PROTOCOL = "a2a-nats/1"
DEADLINE = 10.0

METHODS = (
    "message/send",
    "message/stream",
    "tasks/get",
    "tasks/cancel",
    "tasks/resubscribe",
    "tasks/pushNotificationConfig/set",
    "tasks/pushNotificationConfig/get",
    "tasks/pushNotificationConfig/list",
    "tasks/pushNotificationConfig/delete",
    "agent/getAuthenticatedExtendedCard",
)
STREAMS = frozenset({"message/stream", "tasks/resubscribe"})


class PeerFailed(Exception):
    """The TypeScript peer would have failed here."""


class AnsweredError(Exception):
    """The answer is an error.

    Args:
        error: the member of the response.
    """

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(error)
        self.code = error["code"]
        self.message = error["message"]
        self.data = error.get("data")


@dataclass(frozen=True)
class Received:
    """A message as it came."""

    subject: str
    sid: str
    reply: str
    headers: bytes
    payload: bytes


def compact(value: Any) -> bytes:
    """JSON as `JSON.stringify` writes it, for values that both languages write alike."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


class Wire:
    """A bare connection to a NATS server.

    Attributes:
        received: payloads by sid; None ends one.
        sent: every line written, payloads left out.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._queues: dict[str, asyncio.Queue[Received]] = {}
        self._pongs: list[asyncio.Future[None]] = []
        self._sids = itertools.count(1)
        self.sent: list[bytes] = []

    def write(self, data: bytes) -> None:
        """Send these bytes."""
        self.sent.append(data)
        self._writer.write(data)

    async def subscribe(self, subject: str, queue: str = "") -> tuple[str, asyncio.Queue[Received]]:
        """Subscribe and wait until the server has it."""
        sid = str(next(self._sids))
        self._queues[sid] = asyncio.Queue()
        self.write(f"SUB {subject} {queue} {sid}\r\n".replace("  ", " ").encode())
        await self.flush()
        return sid, self._queues[sid]

    def unsubscribe(self, sid: str) -> None:
        """End a subscription."""
        self._queues.pop(sid, None)
        self.write(f"UNSUB {sid}\r\n".encode())

    def publish(self, subject: str, payload: bytes, reply: str = "", headers: bytes = b"") -> None:
        """Publish."""
        to = f"{subject} {reply}".strip().encode()
        if headers:
            sizes = b"%d %d" % (len(headers), len(headers) + len(payload))
            self.write(b"HPUB " + to + b" " + sizes + b"\r\n" + headers + payload + b"\r\n")
        else:
            self.write(b"PUB " + to + b" %d\r\n" % len(payload) + payload + b"\r\n")

    async def flush(self) -> None:
        """Wait until the server has worked through what was sent."""
        pong: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._pongs.append(pong)
        self.write(b"PING\r\n")
        await asyncio.wait_for(pong, DEADLINE)

    async def read(self) -> None:
        """Take what the server sends, until it closes."""
        while line := await self._reader.readline():
            words = line.split()
            match words[0]:
                case b"PING":
                    self.write(b"PONG\r\n")
                case b"PONG":
                    if self._pongs:
                        self._pongs.pop(0).set_result(None)
                case b"MSG" | b"HMSG":
                    await self._message(words)
                case b"-ERR":
                    raise PeerFailed(line.decode())

    async def _message(self, words: list[bytes]) -> None:
        size = int(words[-1])
        head = int(words[-2]) if words[0] == b"HMSG" else 0
        named = words[3 : -2 if head else -1]
        body = (await self._reader.readexactly(size + 2))[:-2]
        sid = words[2].decode()
        reply = named[0].decode() if named else ""
        if sid in self._queues:
            message = Received(words[1].decode(), sid, reply, body[:head], body[head:])
            self._queues[sid].put_nowait(message)


@asynccontextmanager
async def wire(url: str) -> AsyncGenerator[Wire]:
    """A bare connection; its reading ends with it."""
    place = urlsplit(url)
    reader, writer = await asyncio.open_connection(place.hostname, place.port, limit=2**24)
    await reader.readline()
    peer = Wire(reader, writer)
    options = {"verbose": False, "pedantic": False, "headers": True, "no_responders": True}
    peer.write(b"CONNECT " + compact(options) + b"\r\n")
    reading = asyncio.create_task(peer.read())
    try:
        await peer.flush()
        yield peer
    finally:
        writer.close()
        reading.cancel()
        await asyncio.wait([reading])
        if not reading.cancelled() and isinstance(error := reading.exception(), PeerFailed):
            raise error


# ── the client ───────────────────────────────────────────────────────────────────────────────────────


class RawClient:
    """The TypeScript client over core NATS; ids are shared by unary calls and streams."""

    def __init__(self, peer: Wire, subject: str) -> None:
        self._peer = peer
        self._subject = subject
        self._ids = itertools.count(1)

    def frame(
        self, method: str, params: Any = None, parameters: dict[str, str] | None = None
    ) -> bytes:
        """The next request frame."""
        call: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
        if params is not None:
            call["params"] = params
        call["id"] = next(self._ids)
        frame: dict[str, Any] = {"protocol": PROTOCOL, "request": call}
        if parameters:
            frame["serviceParameters"] = parameters
        return compact(frame)

    async def call(self, method: str, params: Any = None, **options: Any) -> Any:
        """A unary call: the bare response on an inbox of its own.

        Raises:
            AnsweredError: an error was answered.
            PeerFailed: the TypeScript client could not read it.
        """
        payload = self.frame(method, params, **options)
        return self.result((await self.ask(payload)).payload, json.loads(payload)["request"]["id"])

    async def ask(self, payload: bytes) -> Received:
        """Send a payload and take what comes first."""
        inbox = f"_INBOX.raw{id(self):x}.{next(self._ids):x}"
        sid, queue = await self._peer.subscribe(inbox)
        try:
            self._peer.publish(self._subject, payload, inbox)
            return await asyncio.wait_for(queue.get(), DEADLINE)
        finally:
            self._peer.unsubscribe(sid)

    @staticmethod
    def result(payload: bytes, call_id: Any) -> Any:
        """What a bare response gives the TypeScript caller."""
        response = _json(payload)
        if "error" in response:
            if response["error"] is None:
                raise PeerFailed("TypeError: error is null")
            if response.get("id") != call_id:
                raise PeerFailed(f"id mismatch, got {response.get('id')!r}")
            raise AnsweredError(response["error"])
        if response.get("id") != call_id or type(response.get("id")) is not type(call_id):
            raise PeerFailed(f"id mismatch, got {response.get('id')!r}")
        return response.get("result")

    async def stream(self, method: str, params: Any = None, **options: Any) -> AsyncGenerator[Any]:
        """A stream of results; an inbox for it, subscribed and flushed before the request.

        Raises:
            As `call`.
        """
        payload = self.frame(method, params, **options)
        inbox = f"_INBOX.raws{id(self):x}.{next(self._ids):x}"
        sid, queue = await self._peer.subscribe(inbox)
        try:
            self._peer.publish(self._subject, payload, inbox)
            call_id = json.loads(payload)["request"]["id"]
            while True:
                received = await asyncio.wait_for(queue.get(), DEADLINE)
                kind, value = self.event(received.payload, call_id)
                if kind == "complete":
                    return
                yield value
        finally:
            self._peer.unsubscribe(sid)

    async def follow(self, method: str, params: Any = None, **options: Any) -> list[Any]:
        """A whole stream."""
        return [each async for each in self.stream(method, params, **options)]

    @staticmethod
    def event(payload: bytes, call_id: Any) -> tuple[str, Any]:
        """What a stream frame gives the TypeScript caller."""
        frame = _json(payload)
        if frame.get("protocol") != PROTOCOL or not isinstance(frame.get("kind"), str):
            raise PeerFailed("NATS message did not contain an A2A stream frame")
        match frame["kind"]:
            case "complete":
                if frame.get("id") != call_id or type(frame.get("id")) is not type(call_id):
                    raise PeerFailed("id mismatch in complete")
                return "complete", None
            case "transport-error":
                raise PeerFailed(f"transport-error: {frame['message']}")
            case "response":
                response = frame["response"]
                value = RawClient.result(compact(response), call_id)
                if "result" not in response:
                    raise PeerFailed("the response did not contain a result.")
                return "response", value
        raise PeerFailed(f"Unexpected A2A NATS stream frame: {frame['kind']}")


def _json(payload: bytes) -> dict[str, Any]:
    if not payload:
        raise PeerFailed("Unexpected end of JSON input")
    try:
        value = json.loads(payload.decode("utf-8", "replace"))
    except ValueError as error:
        raise PeerFailed(str(error)) from error
    if not isinstance(value, dict):
        raise PeerFailed("NATS message did not contain an A2A stream frame")
    return value


# ── the server ───────────────────────────────────────────────────────────────────────────────────────

Answer = Callable[[str, Any], Any]
"""Gives the result of a unary method, or the list of a stream's results; an `AnsweredError` is an error."""


class RawServer:
    """The TypeScript server over core NATS.

    Args:
        peer: connection.
        answer: what each method gives.

    Attributes:
        requests: payloads as they came.
        headers: of these.
    """

    def __init__(self, peer: Wire, answer: Answer) -> None:
        self._peer = peer
        self._answer = answer
        self.requests: list[bytes] = []
        self.headers: list[bytes] = []

    @asynccontextmanager
    async def serving(self, subject: str) -> AsyncGenerator[RawServer]:
        """Serve until the block ends."""
        sid, queue = await self._peer.subscribe(subject)

        async def serve() -> None:
            while True:
                received = await queue.get()
                self.requests.append(received.payload)
                self.headers.append(received.headers)
                for payload in self.replies(received.payload):
                    self._peer.publish(received.reply, payload)

        task = asyncio.create_task(serve())
        try:
            yield self
        finally:
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled() and (error := task.exception()) is not None:
                raise error
            self._peer.unsubscribe(sid)

    def replies(self, payload: bytes) -> list[bytes]:
        """What the TypeScript server sends for a payload."""
        request = self._request(payload)
        if request is None:
            text = "NATS message did not contain an A2A request frame"
            return [_response(None, error={"code": -32603, "message": text})]
        call_id, method = request.get("id"), request["method"]
        if method not in METHODS:
            error = {"code": -32601, "message": f"Method not found: {method}"}
            return [_response(call_id, error=error)]
        try:
            given = self._answer(method, request.get("params"))
        except AnsweredError as refused:
            error = {"code": refused.code, "message": refused.message}
            if method in STREAMS:
                frame = {"protocol": PROTOCOL, "kind": "transport-error", "id": call_id}
                return [compact({**frame, "message": refused.message})]
            return [_response(call_id, error=error)]
        if method not in STREAMS:
            return [_response(call_id, result=given)]
        frames: list[dict[str, Any]] = [
            {"kind": "response", "response": {"jsonrpc": "2.0", "id": call_id, "result": event}}
            for event in given
        ]
        frames.append({"kind": "complete", "id": call_id})
        return [compact({"protocol": PROTOCOL, **frame}) for frame in frames]

    @staticmethod
    def _request(payload: bytes) -> dict[str, Any] | None:
        try:
            frame = json.loads(payload.decode("utf-8", "replace"))
        except ValueError:
            return None
        if not isinstance(frame, dict):
            return None
        request = frame.get("request") if frame.get("protocol") == PROTOCOL else frame
        valid = (
            isinstance(request, dict)
            and request.get("jsonrpc") == "2.0"
            and isinstance(request.get("method"), str)
        )
        return request if valid else None


def _response(call_id: Any, **content: Any) -> bytes:
    return compact({"jsonrpc": "2.0", "id": call_id, **content})
