"""A WebSocket to the control plane, for callers that wait: over wsproto, with the transport's address, key and trust.

    with transport.websocket(f"/v1/workers/{ref}/terminal", {"rows": 24}) as socket:
        socket.send_bytes(b"...")
        message = socket.receive(timeout=5.0)  # None: nothing came

One thread may receive while others send. `fileno` is for `select`; look at `waiting` first, since a message may have
come already. `async_websocket` is for tasks.
"""

from __future__ import annotations

import contextlib
import math
import select
import socket
import ssl
import threading
import time
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlencode, urlsplit

import httpx2

from postroom.client.locate import ServerAddress
from postroom.client.rules import ANSWER_TIMEOUT, CONNECT_TIMEOUT, Query, reported
from postroom.errors import PeerError, PostroomError, RequestTimeout
from postroom.http.unix import short_address
from postroom.http.websocket import ClientSide, Refusal
from postroom.protocol.intervals import STREAM_SILENCE
from postroom.protocol.limits import MAX_SOCKET_MESSAGE
from postroom.protocol.sockets import Code

CHUNK = 64 * 1024


class SocketEnded(PeerError):
    """The post room has closed a WebSocket, or the connection broke (`close_code` 1006)."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason or f"the post room closed the connection (code {code})")
        self.close_code = code
        self.reason = reason


class WebSocket:
    """An open connection; a context manager that closes it. Made by `connect`."""

    def __init__(self, link: socket.socket, *, most: int = MAX_SOCKET_MESSAGE) -> None:
        self._link = link
        self._side = ClientSide(most)
        self._lock = threading.Lock()
        self._ended: PostroomError | None = None
        self._heard = time.monotonic()

    @classmethod
    def connect(
        cls,
        server: ServerAddress,
        url: str,
        query: Query,
        headers: Mapping[str, str],
        *,
        most: int = MAX_SOCKET_MESSAGE,
    ) -> WebSocket:
        """Connect to `url`, which is one of `server`.

        Args:
            most: bytes of a message that is taken.

        Raises:
            NotRunning: nobody listens there.
            ProtocolViolation: what listens there is not the post room.
            RequestTimeout: it did not answer in time.
            PeerError: the connection broke.
            PostroomError: the control plane's own error.
        """
        made = cls(_dial(server, url), most=most)
        try:
            made._open(url, query, headers)
        except BaseException:
            made.abort()
            raise
        return made

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def fileno(self) -> int:
        """The descriptor that gets ready when something comes."""
        return self._link.fileno()

    @property
    def waiting(self) -> bool:
        """Whether `receive` has something without waiting, whatever the descriptor says."""
        return bool(self._side.messages) or (
            isinstance(self._link, ssl.SSLSocket) and self._link.pending() > 0
        )

    def send_text(self, text: str) -> None:
        """Send a text message; raises SocketEnded."""
        self._send_message(text)

    def send_bytes(self, data: bytes) -> None:
        """Send a binary message; raises SocketEnded."""
        self._send_message(data)

    def receive(self, timeout: float = math.inf) -> str | bytes | None:
        """The next message; None if none came within `timeout` seconds.

        Raises:
            SocketEnded: there will be none; also after `STREAM_SILENCE` seconds without even a ping.
            ProtocolViolation: what came is no WebSocket, or too large.
        """
        end = time.monotonic() + timeout
        while not self._side.messages:
            if self._ended is not None:
                raise self._ended
            now = time.monotonic()
            silent = self._heard + STREAM_SILENCE
            if not self._ready(min(end, silent) - now):
                if time.monotonic() < end:
                    self._end(SocketEnded(1006, "the post room is silent"))
                    continue
                return None
            self._take()
        return self._side.messages.popleft()

    async def received(self) -> str | bytes:
        """`receive`, without an end of the time, for what is written for tasks, too."""
        return self.receive() or b""

    def close(self, code: int = Code.DONE, reason: str = "") -> None:
        """Close it; idempotent, and from any thread: one that receives gets SocketEnded."""
        if self._ended is None:
            with contextlib.suppress(PostroomError), self._lock:
                self._push(self._side.closing(code, reason))
        self.abort()

    def abort(self) -> None:
        """Close it without a word."""
        self._ended = self._ended or SocketEnded(1006, "the connection was closed here")
        # Closing alone would not wake a thread that reads.
        with contextlib.suppress(OSError):
            self._link.shutdown(socket.SHUT_RDWR)
        self._link.close()

    # ── the handshake ──

    def _open(self, url: str, query: Query, headers: Mapping[str, str]) -> None:
        parts = urlsplit(url)
        target = parts.path + (f"?{urlencode(query)}" if query else "")
        self._push(self._side.opening(parts.netloc, target, headers.items()))
        end = time.monotonic() + ANSWER_TIMEOUT
        while not self._side.accepted:
            if not self._ready(end - time.monotonic()):
                raise RequestTimeout("the post room did not answer in time")
            try:
                self._read()
            except PostroomError as error:
                if not self._side.accepted:
                    raise
                self._end(error)  # it came with the first messages
            refusal = self._side.refusal
            if refusal is not None and refusal.whole:
                raise refused(refusal)

    # ── reading ──

    def _ready(self, timeout: float) -> bool:
        """Whether bytes are there within `timeout` seconds."""
        if isinstance(self._link, ssl.SSLSocket) and self._link.pending():
            return True
        poll = select.poll()
        try:
            poll.register(self._link, select.POLLIN)
        except (ValueError, OSError):  # closed by another thread
            return True
        return bool(poll.poll(max(0.0, timeout) * 1000))

    def _take(self) -> None:
        """Take what has come."""
        try:
            self._read()
        except PostroomError as error:
            self._end(error)

    def _read(self) -> None:
        try:
            data = self._link.recv(CHUNK)
        except ssl.SSLWantReadError:
            return
        except OSError as error:
            raise SocketEnded(1006, f"the connection to the post room broke: {error}") from error
        if not data:
            raise SocketEnded(1006, "the connection to the post room broke")
        self._heard = time.monotonic()
        with self._lock:
            answers = self._side.take(data)
            if self._side.closed is None:
                self._push(answers)
                return
            with contextlib.suppress(PostroomError):
                self._push(answers)
        raise SocketEnded(*self._side.closed)

    def _end(self, error: PostroomError) -> None:
        self._ended = self._ended or error
        self.abort()

    # ── writing ──

    def _send_message(self, data: str | bytes) -> None:
        if self._ended is not None:
            raise self._ended
        with self._lock:
            message = self._side.message(data)
            if not message:
                raise self._ended or SocketEnded(1006, "the connection is closed")
            self._push(message)

    def _push(self, data: bytes) -> None:
        """Send bytes; whoever calls holds the lock, so that they go out in the order in which they were made."""
        if not data:
            return  # a unix socket refuses even that once its other end has closed
        try:
            self._link.sendall(data)
        except TimeoutError as error:
            raise SocketEnded(1006, "the post room takes nothing any more") from error
        except OSError as error:
            raise SocketEnded(1006, f"the connection to the post room broke: {error}") from error


def place(url: str) -> tuple[str, int]:
    """The host and the port of `url`."""
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)


@contextlib.contextmanager
def handshake(server: ServerAddress, url: str) -> Generator[dict[str, Any]]:
    """Arguments for TLS to `url`, none where there is no TLS; what fails is NotRunning or ProtocolViolation."""
    parts = urlsplit(url)
    try:
        tls = parts.scheme == "https"
        yield {"ssl": server.context(), "server_hostname": parts.hostname} if tls else {}
    except ssl.SSLCertVerificationError as error:
        raise server.distrust(error.verify_message) from error
    except OSError as error:
        raise server.silent() from error


def _dial(server: ServerAddress, url: str) -> socket.socket:
    near = bool(server.socket)
    with handshake(server, url) as tls:
        if near:
            link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        else:
            link = socket.create_connection(place(url), timeout=CONNECT_TIMEOUT)
        try:
            if near:
                link.settimeout(CONNECT_TIMEOUT)
                with short_address(Path(server.socket)) as address:
                    link.connect(address)
                server.check(link.fileno())
            else:
                link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if tls:
                link = tls["ssl"].wrap_socket(link, server_hostname=tls["server_hostname"])
        except BaseException:
            link.close()
            raise
    link.settimeout(ANSWER_TIMEOUT)
    return link


def refused(refusal: Refusal) -> PostroomError:
    """The control plane's own error."""
    return reported(httpx2.Response(refusal.status, content=refusal.body))
