"""One request and its answer, passed on in both directions at once, piece by piece, with their audit records.

The gateway writes the request anew, on a connection of its own. So the upstream never gets the sandbox's bytes,
whatever two readers could see in them. Of its headers those pass that go from one connection to the next (RFC 9110,
section 7.6.1).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import h11

from postroom.errors import PeerError, PostroomError, ProtocolViolation
from postroom.gateway.connection import GatewayConnection
from postroom.http.connection import HttpConnection
from postroom.protocol.audit import DENIED, IN, OUT

Headers = list[tuple[bytes, bytes]]
"""Names, in lower case, and values."""

_HOP_BY_HOP = frozenset(
    {
        *(b"connection", b"keep-alive", b"te", b"trailer", b"transfer-encoding", b"upgrade"),
        *(b"expect", b"http2-settings"),
    }
)
_OF_PROXIES = frozenset(
    {
        *(b"forwarded", b"via", b"x-real-ip", b"x-client-ip", b"true-client-ip"),
        *(b"cf-connecting-ip", b"x-cluster-client-ip", b"x-original-url", b"x-rewrite-url"),
    }
)
"""Headers that servers believe of a proxy before them: a sandbox must not pose as one."""

MAX_URL = 2048

_BEFORE = re.compile(r"\w+://|/\w+/|")
"""The part before a user and a host."""


def nominated(headers: Iterable[tuple[bytes, bytes]]) -> set[bytes]:
    """The headers that a Connection header limits to this connection."""
    return {
        word.strip().lower()
        for name, value in headers
        if name == b"connection"
        for word in value.split(b",")
    }


def end_to_end(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """The headers without those of one connection alone; the length stays unless the body is chunked."""
    headers = list(headers)
    dropped = _HOP_BY_HOP | (nominated(headers) - {b"content-length", b"host"})
    if any(name == b"transfer-encoding" for name, _ in headers):
        dropped |= {b"content-length"}
    return [
        (name, value)
        for name, value in headers
        if name not in dropped and not name.startswith(b"proxy-")
    ]


def onward(
    headers: Iterable[tuple[bytes, bytes]],
    host: str,
    added: Mapping[bytes, tuple[bytes, bytes]],
) -> Headers:
    """The headers of a request as the gateway sends it on.

    Args:
        added: by lower-case name; they replace the sandbox's headers of these names.
    """
    chunked = any(name == b"transfer-encoding" for name, _ in headers)
    kept = [
        (name, value)
        for name, value in end_to_end(headers)
        if name not in added
        and name != b"host"
        and name not in _OF_PROXIES
        and not name.startswith(b"x-forwarded-")
    ]
    framing = [(b"transfer-encoding", b"chunked")] if chunked else []
    close = [(b"connection", b"close")]
    return [(b"host", host.encode()), *kept, *added.values(), *framing, *close]


class RequestRecord:
    """Writes the records of one request."""

    def __init__(self, conn: GatewayConnection, request: h11.Request, url: str) -> None:
        message, task, exact = conn.cause.now()
        self._conn = conn
        self._said: dict[str, Any] = {
            "verb": request.method.decode("ascii")[:32],
            "url": url[:MAX_URL],
            "cause_message": message,
            "cause_task": task,
            "cause_exact": exact,
        }
        self._announced = sum(
            int(value) for name, value in request.headers if name == b"content-length"
        )
        self._size = self._announced + _head_size(request)

    def allowed(self) -> None:
        """Record that the request is about to be forwarded; `size` is its head and the body that it announces.

        Raises:
            StateUnwritable: the log cannot keep the record; the request must not be forwarded.
        """
        self._conn.write(direction=OUT, size=self._size, **self._said)

    def denied(self, error: PostroomError) -> None:
        """Record the refusal."""
        self._conn.write(
            direction=OUT, size=self._size, verdict=DENIED, reason=error.message, **self._said
        )

    def answered(self, status: int, size: int, reason: str = "", *, sent: int = 0) -> None:
        """Record the answer, or the failure `reason`; `size` is the answer's body, `sent` the request's."""
        if sent > self._announced:  # a chunked body has no size before it ends
            said = f"a body of {sent} bytes was sent"
            reason = f"{reason}; {said}" if reason else said
        self._conn.write(direction=IN, status=status, size=size, reason=reason, **self._said)


def without_user(target: str) -> str:
    """An unreadable target without its query and without a possible user and password.

    A password may hold any character, so everything up to the last `@` goes.
    """
    found = _BEFORE.match(target)
    prefix = found[0] if found else ""
    place, _, query = target.removeprefix(prefix).partition("?")
    if (
        "@" in query
    ):  # the password may have a question mark: then nobody knows where the host begins
        return prefix
    return prefix + place.rpartition("@")[2]


def _head_size(request: h11.Request) -> int:
    """Bytes of its head."""
    size = len(request.method) + len(request.target)
    return size + sum(len(name) + len(value) for name, value in request.headers)


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds that one side may keep the other waiting.

    Attributes:
        head: for the rest of a request's head, once it has begun.
        idle: for the next request of a connection.
        body: for the next piece of a request's body, and for a reader to take a piece.
        answer: for the next piece of an answer; a model may think for long before its first word.
        connect: until the upstream is open.
    """

    head: float = 15.0
    idle: float = 120.0
    body: float = 60.0
    answer: float = 900.0
    connect: float = 20.0


DEFAULT_TIMEOUTS = Timeouts()


class Exchange:
    """Passes one request to the upstream and its answer back.

    Args:
        near: the sandbox; the head of its request was read.
        far: the upstream; no request was sent to it yet.

    Attributes:
        status: of the answer; 0 until it begins.
        sent, received: bytes of the bodies.
    """

    def __init__(self, near: HttpConnection, far: HttpConnection, timeouts: Timeouts) -> None:
        self._near = near
        self._far = far
        self._timeouts = timeouts
        self.status = 0
        self.sent = 0
        self.received = 0

    async def recorded(
        self, record: RequestRecord, method: bytes, target: bytes, headers: Headers
    ) -> None:
        """Run, end the upstream's connection, and record how it ended; raises as `run`."""
        reason = ""
        try:
            await self.run(method, target, headers)
        except PostroomError as error:
            reason = error.message
            raise
        finally:
            self._far.abort()
            record.answered(self.status, self.received, reason, sent=self.sent)

    async def run(self, method: bytes, target: bytes, headers: Headers) -> None:
        """Pass the request and its whole answer.

        Raises:
            ProtocolViolation: a side does not speak HTTP/1.1.
            RequestTimeout: a side kept the other waiting for too long.
            PeerError: a side went away.
        """
        request = h11.Request(method=method, target=target, headers=headers)
        try:
            await self._far.send(request, self._timeouts.body)
            await self._both()
        except OSError as error:
            raise PeerError(f"the connection broke: {error.strerror or error}") from error

    async def _both(self) -> None:
        up = asyncio.ensure_future(self._upload())
        down = asyncio.ensure_future(self._download())
        try:
            await asyncio.wait({up, down}, return_when=asyncio.FIRST_COMPLETED)
            await (down if down.done() else up)
        finally:
            up.cancel()
            down.cancel()
            await asyncio.gather(up, down, return_exceptions=True)

    async def _upload(self) -> NoReturn:
        """Pass the request's body; then wait for the sandbox to go away, which ends the exchange."""
        near, timeouts = self._near, self._timeouts
        while True:
            match await near.next_event(timeouts.body):
                case h11.Data(data=data):
                    self.sent += len(data)
                    await self._offer(h11.Data(data=data))
                case h11.EndOfMessage():
                    await self._offer(h11.EndOfMessage())
                    break
                case _:
                    raise PeerError("the request ended too soon")
        await near.gone()
        raise PeerError("the worker did not wait for the answer")

    async def _offer(self, event: h11.Data | h11.EndOfMessage) -> None:
        try:
            await self._far.send(event, self._timeouts.body)
        except OSError:
            # It may have answered without reading on: only `_download` can tell, which has a deadline.
            await asyncio.get_running_loop().create_future()

    async def _download(self) -> None:
        near, far, timeouts = self._near, self._far, self._timeouts
        while True:
            match await far.next_event(timeouts.answer):
                case h11.InformationalResponse():
                    continue
                case h11.Response() as answer:
                    self.status = answer.status_code
                    head = h11.Response(
                        status_code=answer.status_code,
                        reason=answer.reason,
                        headers=end_to_end(answer.headers),
                    )
                    await near.send(head, timeouts.body)
                case h11.Data(data=data):
                    self.received += len(data)
                    await near.send(h11.Data(data=data), timeouts.body)
                case h11.EndOfMessage():
                    await near.send(h11.EndOfMessage(), timeouts.body)
                    return
                case _:
                    raise ProtocolViolation("the answer ended too soon")
