"""Terminals of execd, the daemon of an OpenSandbox container: a REST call, then a WebSocket.

Text frames are JSON, binary ones begin with a byte that says what they are. Three traps: the shell has execd's own
environment unless a command gives it another, it always starts with 80 columns, and it lives on when the WebSocket
breaks.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import shlex
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from postroom.errors import NotFound, PeerError, PostroomError, ProtocolViolation
from postroom.http.client import HttpClient
from postroom.http.stream_socket import SocketRefused, StreamSocket
from postroom.observe import get_logger
from postroom.protocol.execd import exit_status
from postroom.protocol.terminals import MAX_PIECE
from postroom.sidecar.execd import ExecdAddress, refusal
from postroom.sidecar.terminal import HANGUP_GRACE, TERM, OpenShell, Shell, shell_of
from postroom.sidecar.workstation import within

ANSWER = 10.0
"""Seconds for execd to answer a request."""

STDIN, STDOUT, STDERR, REPLAY = range(4)
"""First byte of a binary frame."""

REPLAY_HEAD = 9
"""Bytes before what a replay repeats: the kind and an offset."""

UNKNOWN = (404, 405, 501)
"""Answers of an execd that opens no terminals."""

_log = get_logger(__name__)


class ExecdShells:
    """Opens shells on execd's terminals.

    Args:
        env, cwd: of the shells.
        otherwise: opens them where this execd has no terminals.
    """

    def __init__(
        self, address: ExecdAddress, env: Mapping[str, str], cwd: str, otherwise: OpenShell
    ) -> None:
        self._address = address
        self._http = address.client()
        self._env = dict(env)
        self._cwd = cwd
        self._otherwise = otherwise

    async def open(self, size: tuple[int, int]) -> Shell:
        """A shell in a terminal of that size, columns and rows.

        Raises:
            PostroomError: execd does not open it.
        """
        place = await self._created()
        if not place:
            _log.info("this execd opens no terminals: the sidecar does")
            return await self._otherwise(size)
        try:
            shell = ExecdTerminal(await self._joined(place), self._http, place)
        except BaseException:
            await _deleted(self._http, place)
            raise
        await shell.resize(size)
        return shell

    async def _created(self) -> str:
        """Path of a new terminal, "" where there are none."""
        command = shlex.join(
            (
                "exec",
                "env",
                "-i",
                "--",
                *_words(self._env),
                f"TERM={TERM}",
                shell_of(self._env),
                "-i",
            )
        )
        body = json.dumps({"cwd": self._cwd, "command": command}).encode()
        typed = [("content-type", "application/json")]
        async with (
            within(ANSWER, "execd's answer"),
            await self._http.ask("POST", "/pty", headers=typed, body=body) as answer,
        ):
            if answer.status in UNKNOWN:
                return ""
            if answer.status >= 400:
                raise await refusal(answer)
            said = await answer.document()
        try:
            return f"/pty/{quote(said['session_id'], safe='')}"
        except (KeyError, TypeError) as error:
            raise ProtocolViolation("execd's answer names no terminal") from error

    async def _joined(self, place: str) -> StreamSocket:
        address = self._address
        try:
            return await StreamSocket.connect(
                "execd", address.dial, address.host, f"{place}/ws", address.headers.items()
            )
        except SocketRefused as error:
            raise PeerError(
                f"execd opens no terminal: it answered {error.refusal.status}"
            ) from error


class ExecdTerminal(Shell):
    """A `Shell` on a terminal of execd, over an open WebSocket. Who reads drives it."""

    def __init__(self, socket: StreamSocket, http: HttpClient, place: str) -> None:
        self._socket = socket
        self._http = http
        self._place = place
        self._rest = b""
        self._code: int | None = None
        self._lost: PostroomError | None = None
        self._over = asyncio.Event()
        self._closed = False

    async def resize(self, size: tuple[int, int]) -> None:
        await self._say(type="resize", cols=size[0], rows=size[1])

    async def read(self) -> bytes:
        """See `Shell`. execd may leave out the last words of a shell that has ended."""
        while not self._rest:
            try:
                message = await self._socket.receive()
            except PostroomError as error:
                self._end(error)
                return b""
            if message is None:
                self._end(PeerError("execd has closed the terminal"))
                return b""
            self._take(message)
        piece, self._rest = self._rest[:MAX_PIECE], self._rest[MAX_PIECE:]
        return piece

    async def write(self, data: bytes) -> None:
        await self._send(bytes((STDIN,)) + data)

    async def ended(self) -> int:
        await self._over.wait()
        if self._code is None and self._lost is not None:
            raise self._lost
        return self._code or 0

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            if not self._over.is_set():
                await self._say(type="signal", signal="SIGHUP")
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(HANGUP_GRACE):
                        while not self._over.is_set():
                            self._rest = b""
                            await self.read()
        finally:
            self._socket.abort()
            await _deleted(self._http, self._place)

    def _take(self, message: str | bytes) -> None:
        if isinstance(message, str):
            self._note(message)
        elif message[:1] and message[0] in (STDOUT, STDERR):
            self._rest = message[1:]
        elif message[:1] and message[0] == REPLAY:
            self._rest = message[REPLAY_HEAD:]

    def _note(self, message: str) -> None:
        try:
            said = json.loads(message)
            match said["type"]:
                case "exit":
                    self._code = exit_status(int(said["exit_code"]), "")
                    self._over.set()
                case "error":
                    self._end(PeerError(f"execd says: {said.get('error') or said.get('code')}"))
        except (ValueError, KeyError, TypeError, AttributeError):
            self._end(ProtocolViolation("a frame of execd is malformed"))

    def _end(self, error: PostroomError) -> None:
        self._lost = self._lost or error
        self._over.set()

    async def _say(self, **frame: Any) -> None:
        await self._send(json.dumps(frame))

    async def _send(self, message: str | bytes) -> None:
        try:
            await self._socket.send(message)
        except PostroomError as error:
            self._end(error)


def _words(env: Mapping[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in env.items() if name != "TERM"]


async def _deleted(http: HttpClient, place: str) -> None:
    """Have execd kill what is left of a terminal; what it cannot is logged."""
    try:
        async with within(ANSWER, "execd's answer"), await http.ask("DELETE", place) as answer:
            if answer.status >= 400:
                raise await refusal(answer)
    except NotFound:
        return
    except PostroomError as error:
        _log.warning("a terminal may be left in the container: %s", error)
