"""Commands and files through execd, the daemon of an OpenSandbox container: its REST API, without its SDK.

It has two traps. Its event streams are bare JSON and a blank line, whatever their content type says. And a command
that exits with a code other than 0 ends with an `error` and no `execution_complete`.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import shlex
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote, urlencode

from postroom.errors import (
    InvalidInput,
    NotFound,
    PeerError,
    PostroomError,
    ProtocolViolation,
    RequestTimeout,
)
from postroom.http.client import Dial, Headers, HttpAnswer, HttpClient, by_tcp
from postroom.observe import get_logger
from postroom.protocol.execd import TOKEN_HEADER, exit_status, mode_number
from postroom.protocol.limits import MAX_READ
from postroom.protocol.verbs import RunCommand
from postroom.sidecar.lines import LineReader, Overlong
from postroom.sidecar.workstation import (
    FILE_TIMEOUT,
    MAX_ENTRIES,
    Captured,
    CommandResult,
    FolderEntry,
    Workstation,
    named_file,
    parts_of,
    within,
)
from postroom_a2a.text import one_line

GRACE = 10.0
"""Seconds beyond a command's own time for execd to report that it killed the command."""

MAX_FRAME = 8 * 1024 * 1024
"""Bytes of one line of output as JSON; longer lines are left out."""

HOST = "127.0.0.1"

MAX_ANSWER = 8 * 1024 * 1024
KINDS = {"directory": "folder", "symlink": "link"}
_BAD_REQUEST, _NOT_FOUND, _RANGE = 400, 404, 416

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ExecdAddress:
    """execd's port in the container, and its token, "" for none."""

    port: int
    token: str = field(default="", repr=False)

    @property
    def host(self) -> str:
        """Its name in requests."""
        return f"{HOST}:{self.port}"

    @property
    def dial(self) -> Dial:
        """Connects to it."""
        return by_tcp(HOST, self.port)

    @property
    def headers(self) -> dict[str, str]:
        """Those that open it."""
        return {TOKEN_HEADER: self.token} if self.token else {}

    def client(self) -> HttpClient:
        """For requests to it, without a deadline: each use sets its own, since a command may print nothing for long."""
        shown = {"host": self.host, **self.headers}
        return HttpClient("execd", self.dial, shown, step=None, answer=None)


async def refusal(answer: HttpAnswer) -> PostroomError:
    """The error that an answer of 400 or more reports."""
    body = await answer.whole(MAX_ANSWER)
    try:
        said = json.loads(body)
        text = str(said.get("message") or said.get("error") or "")
    except (ValueError, AttributeError):
        text = body[:200].decode("utf-8", errors="replace")
    text = one_line(text, 200)
    if answer.status == _NOT_FOUND:
        return NotFound(text or "execd finds no such file")
    if answer.status == _BAD_REQUEST:
        return InvalidInput(text)
    return PeerError(f"execd answered {answer.status}: {text}")


class ExecdWorkstation(Workstation):
    """A `Workstation` whose work execd does; `root` is the workspace in the same container."""

    def __init__(self, address: ExecdAddress, root: Path, env: Mapping[str, str]) -> None:
        self._http = address.client()
        self._root = root
        self._env = dict(env)
        self._words = True  # until an older execd refuses them

    async def run(self, command: RunCommand) -> CommandResult:
        """See `Workstation`. A last line without a newline gets one: execd does not tell the two apart."""
        cwd = self._root.joinpath(*parts_of(command.cwd))
        asked = {
            "cwd": str(cwd),
            "timeout": max(1, round(command.timeout * 1000)),
            "envs": self._env | dict(command.env),
        }
        if self._words:
            try:
                return await self._run({"argv": list(command.words), **asked}, command.timeout)
            except InvalidInput:
                # Either the folder is wrong or this execd knows no `argv`: the second try tells.
                _log.debug("execd refused a command with argv")
        done = await self._run(
            {"command": f"exec {shlex.join(command.words)}", **asked}, command.timeout
        )
        self._words = False
        return done

    async def _run(self, asked: dict[str, Any], seconds: float) -> CommandResult:
        running = _Running()
        began = time.monotonic()
        try:
            async with within(seconds + GRACE, "the command"):
                body = json.dumps(asked).encode()
                async with await self._ask("POST", "/command", body, "application/json") as answer:
                    if answer.status >= _BAD_REQUEST:
                        raise await refusal(answer)
                    await running.follow(answer.pieces())
        except (RequestTimeout, asyncio.CancelledError):
            if running.id:
                await self._interrupt(running.id)
            raise
        return running.done(killed_late=time.monotonic() - began >= seconds)

    async def _interrupt(self, command: str) -> None:
        try:
            await self._order("DELETE", "/command", id=command)
        except PostroomError as error:
            _log.warning("a command that timed out still runs in the container: %s", error)

    async def read(self, path: str, offset: int, length: int) -> bytes:
        target = await self._place(named_file(path))
        length = min(length, MAX_READ)
        if length <= 0:
            return b""
        wanted = [("range", f"bytes={offset}-{offset + length - 1}")]
        query = f"/files/download?{urlencode({'path': target})}"
        found = bytearray()
        async with (
            within(FILE_TIMEOUT, "the download"),
            await self._ask("GET", query, headers=wanted) as answer,
        ):
            if answer.status == _RANGE:
                return b""
            if answer.status >= _BAD_REQUEST:
                raise await refusal(answer)
            skip = 0 if answer.status == 206 else offset
            async for piece in answer.pieces():
                found += piece[skip:]
                skip = max(0, skip - len(piece))
                if len(found) >= length:
                    break
        return bytes(found[:length])

    async def write(self, path: str, content: bytes, mode: int) -> None:
        target = await self._place(named_file(path))
        about = json.dumps({"path": target, "mode": mode_number(mode)}).encode()
        boundary = secrets.token_hex(24)
        body = b"".join(
            (
                _part(boundary, "metadata", "application/json", about),
                _part(boundary, "file", "application/octet-stream", content),
                f"--{boundary}--\r\n".encode(),
            )
        )
        kind = f"multipart/form-data; boundary={boundary}"
        async with (
            within(FILE_TIMEOUT, "the upload"),
            await self._ask("POST", "/files/upload", body, kind) as answer,
        ):
            if answer.status >= _BAD_REQUEST:
                raise await refusal(answer)
            await answer.whole(MAX_ANSWER)

    async def entries(self, path: str) -> list[FolderEntry]:
        target = await self._place(parts_of(path))
        found = await self._order("GET", "/directories/list", path=target, depth="1")
        try:
            entries = [_entry(record) for record in found]
        except (KeyError, TypeError, ValueError) as error:
            raise ProtocolViolation("execd's list of a folder is malformed") from error
        return sorted(entries, key=lambda entry: entry.name)[:MAX_ENTRIES]

    async def remove(self, path: str) -> None:
        target = await self._place(named_file(path))
        about = await self._order("GET", "/files/info", path=target)
        try:
            folder = about[target]["type"] == "directory"
        except (KeyError, TypeError) as error:
            raise ProtocolViolation("execd's answer does not describe the file") from error
        await self._order("DELETE", "/directories" if folder else "/files", path=target)

    async def _place(self, parts: tuple[str, ...]) -> str:
        """The path for execd, without links in it: execd would follow them."""
        await asyncio.to_thread(_refuse_links, self._root, parts)
        return str(PurePosixPath(self._root, *parts))

    async def _order(self, method: str, place: str, **query: str) -> Any:
        """The JSON answer to a request without a body; None for an empty answer."""
        target = f"{place}?{urlencode(query, quote_via=quote)}"
        async with (
            within(FILE_TIMEOUT, "execd's answer"),
            await self._ask(method, target) as answer,
        ):
            if answer.status >= _BAD_REQUEST:
                raise await refusal(answer)
            body = await answer.whole(MAX_ANSWER)
        try:
            return json.loads(body) if body else None
        except ValueError as error:
            raise ProtocolViolation("execd's answer is not JSON") from error

    async def _ask(
        self,
        method: str,
        target: str,
        body: bytes = b"",
        kind: str = "",
        headers: Headers = (),
    ) -> HttpAnswer:
        typed = [("content-type", kind)] if kind else []
        return await self._http.ask(method, target, headers=[*typed, *headers], body=body)


class _Running:
    """A running command, from its frames."""

    def __init__(self) -> None:
        self.id = ""
        self._out, self._err = Captured(), Captured()
        self._code: int | None = None
        self._killed = False

    async def follow(self, pieces: AsyncIterator[bytes]) -> None:
        """Take frames up to the last one; execd holds the answer open beyond it.

        Raises:
            ProtocolViolation: a frame is malformed, or the last one is missing.
        """
        lines = LineReader(MAX_FRAME)
        async for piece in pieces:
            for line in lines.feed(piece):
                if isinstance(line, Overlong):
                    self._out.truncated = self._err.truncated = True
                elif text := line.removeprefix("data:").strip():
                    self._take(text)
                if self._code is not None:
                    return
        raise ProtocolViolation("execd's answer broke off before the command's end")

    def _take(self, text: str) -> None:
        try:
            frame = json.loads(text)
            match frame["type"]:
                case "init":
                    self.id = str(frame["text"])
                case "stdout":
                    self._out.add(_line(frame["text"]))
                case "stderr":
                    self._err.add(_line(frame["text"]))
                case "execution_complete":
                    self._code = 0
                case "error":
                    error = frame["error"]
                    said = error.get("traceback") or [""]
                    number = int(error["evalue"])
                    self._killed = number < 0
                    self._code = exit_status(number, str(said[0]))
        except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            raise ProtocolViolation(
                f"execd's frame is malformed: {one_line(text, 100)!r}"
            ) from error

    def done(self, *, killed_late: bool) -> CommandResult:
        """The result; a command that was killed after its time has timed out."""
        return CommandResult(
            self._code or 0,
            self._out.text,
            self._err.text,
            self._out.truncated,
            self._err.truncated,
            self._killed and killed_late,
        )


def _line(text: str) -> bytes:
    """A line with its newline, which execd leaves out except of an empty line."""
    whole = text if text == "\n" else f"{text}\n"
    return whole.encode("utf-8", errors="replace")


def _part(boundary: str, name: str, kind: str, content: bytes) -> bytes:
    head = (
        f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"; filename="{name}"\r\n'
        f"Content-Type: {kind}\r\n\r\n"
    )
    return head.encode() + content + b"\r\n"


def _entry(record: dict[str, Any]) -> FolderEntry:
    kind = str(record["type"])
    name = PurePosixPath(record["path"]).name
    return FolderEntry(name, KINDS.get(kind, kind), int(record["size"]), str(record["mode"]))


def _refuse_links(root: Path, parts: tuple[str, ...]) -> None:
    place = root
    for name in parts:
        place /= name
        if place.is_symlink():
            raise InvalidInput(f"{one_line(str(place.relative_to(root)), 100)!r} is a link")


__all__ = ["ExecdAddress", "ExecdWorkstation", "refusal"]
