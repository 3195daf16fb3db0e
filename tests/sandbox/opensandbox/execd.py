"""A double of execd, the daemon in each OpenSandbox container, that really runs the commands and keeps the files.

Started in a container (`double.py`), it listens on a unix socket that the lifecycle server relays to and on
execd's port inside. What it answers is held to the recording of a real one by test_conformance.py.
"""

from __future__ import annotations

import asyncio
import email.parser
import email.policy
import fcntl
import fnmatch
import grp
import json
import os
import pwd
import re
import secrets
import shutil
import signal
import socket
import struct
import sys
import termios
import time
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse as PlainJson
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

PORT = 44772
PING = 3.0
TOKEN = "X-EXECD-ACCESS-TOKEN"
STREAM = {
    "Cache-Control": "no-cache",
    "Content-Type": "text/event-stream",
    "X-Accel-Buffering": "no",
}
INVALID = "INVALID_REQUEST_BODY"


class JSONResponse(PlainJson):
    media_type = "application/json; charset=utf-8"


class Refusal(Exception):
    """An error with execd's code and text."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.answer = JSONResponse({"code": code, "message": message}, status)


@dataclass
class Command:
    """One command and what became of it."""

    id: str
    content: str
    process: asyncio.subprocess.Process
    started: datetime
    log: bytearray = field(default_factory=bytearray)
    finished: datetime | None = None
    code: int | None = None
    error: str = ""


def rfc3339(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%S.%f") + "000Z"


def frame(kind: str, **fields: Any) -> bytes:
    """Bare JSON and a blank line, whatever the content type says."""
    record = {"type": kind, **fields, "timestamp": time.time_ns() // 1_000_000}
    return json.dumps(record, separators=(",", ":"), ensure_ascii=False).encode() + b"\n\n"


class Execd:
    """The daemon's state.

    Args:
        token: that requests have to show, "" for none.
        argv: whether it knows commands by their words, and a terminal's command, as newer ones do.
        terminals: whether it opens terminals.
    """

    def __init__(self, token: str = "", *, argv: bool = True, terminals: bool = True) -> None:
        self.token = token
        self.argv = argv
        self.with_terminals = terminals
        self.terminals: dict[str, Terminal] = {}
        self.commands: dict[str, Command] = {}
        self.sessions: dict[str, Session] = {}
        self.tasks: set[asyncio.Task[None]] = set()

    def app(self) -> Callable[..., Awaitable[None]]:
        def route(path: str, method: str, handler: Callable[[Request], Awaitable[Response]]):
            async def guarded(request: Request) -> Response:
                if self.token and request.headers.get(TOKEN) != self.token:
                    text = f"Unauthorized: invalid or missing header {TOKEN}"
                    return JSONResponse({"error": text}, 401)
                try:
                    return await handler(request)
                except Refusal as refusal:
                    return refusal.answer

            return Route(path, guarded, methods=[method])

        async def lost(request: Request, error: Exception) -> Response:
            return Response("404 page not found", 404, {"Content-Type": "text/plain"})

        async def joined(socket: WebSocket) -> None:
            if self.token and socket.headers.get(TOKEN) != self.token:
                await socket.send_denial_response(JSONResponse({"error": "Unauthorized"}, 401))
                return
            try:
                await self.join_terminal(socket)
            except Refusal as refusal:
                await socket.send_denial_response(refusal.answer)

        terminals = [
            route("/pty", "POST", self.open_terminal),
            route("/pty/{id}", "GET", self.terminal_status),
            route("/pty/{id}", "DELETE", self.close_terminal),
            WebSocketRoute("/pty/{id}/ws", joined),
        ]
        any_method = ("GET", "POST", "PUT", "PATCH", "DELETE")
        return Starlette(
            routes=[
                route("/ping", "GET", self.ping),
                route("/command", "POST", self.command),
                route("/command", "DELETE", self.interrupt),
                route("/command/status/{id}", "GET", self.status),
                route("/command/{id}/logs", "GET", self.logs),
                route("/session", "POST", self.open_session),
                route("/session/{id}/run", "POST", self.run_session),
                route("/session/{id}", "DELETE", self.close_session),
                route("/code/contexts", "GET", self.contexts),
                route("/code", "POST", self.code),
                route("/files/upload", "POST", self.upload),
                route("/files/info", "GET", self.info),
                route("/files/download", "GET", self.download),
                route("/files/replace", "POST", self.replace),
                route("/files/mv", "POST", self.move),
                route("/files/permissions", "POST", self.permissions),
                route("/files/search", "GET", self.search),
                route("/files", "DELETE", self.remove),
                route("/directories/list", "GET", self.listing),
                route("/directories", "POST", self.make_folders),
                route("/directories", "DELETE", self.remove_folders),
                route("/metrics", "GET", self.metrics),
                *(terminals if self.with_terminals else ()),
                *(route("/proxy/{port:int}/{path:path}", m, self.proxy) for m in any_method),
            ],
            exception_handlers={404: lost, 405: lost},
        )

    async def ping(self, request: Request) -> Response:
        return Response()

    # Commands.

    async def command(self, request: Request) -> Response:
        asked = await _json(request)
        words = asked.get("argv") if self.argv else None
        text = asked.get("command") or ""
        if not words and not text:
            raise Refusal(
                400,
                INVALID,
                "invalid request, validation error Key: 'RunCommandRequest.Command' "
                "Error:Field validation for 'Command' failed on the 'required' tag",
            )
        folder = asked.get("cwd") or None
        if folder and not Path(folder).is_dir():
            raise Refusal(
                400,
                INVALID,
                f"invalid request, validation error working directory does not exist: {folder}: "
                f"stat {folder}: no such file or directory",
            )
        command = Command(
            secrets.token_hex(16),
            text or json.dumps(words),
            await asyncio.create_subprocess_exec(
                *(words or ("bash", "-c", text)),
                cwd=folder,
                env={**os.environ, **(asked.get("envs") or {})},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
                limit=1 << 24,
            ),
            datetime.now(UTC),
        )
        self.commands[command.id] = command
        lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        limit = asked["timeout"] / 1000 if asked.get("timeout") else None
        task = asyncio.create_task(_follow(command, lines, limit))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        frames = _background(command) if asked.get("background") else _foreground(command, lines)
        return StreamingResponse(frames, headers=STREAM, media_type=None, status_code=200)

    async def interrupt(self, request: Request) -> Response:
        command = self.commands.get(request.query_params.get("id", ""))
        if command is None:
            raise Refusal(500, "RUNTIME_ERROR", "error interruptting code context. no such session")
        if command.finished is None:
            os.killpg(command.process.pid, signal.SIGTERM)
        return Response()

    async def status(self, request: Request) -> Response:
        command = self.commands.get(request.path_params["id"])
        if command is None:
            raise Refusal(404, INVALID, f"command not found: {request.path_params['id']}")
        ended = command.finished is not None
        said = {
            "id": command.id,
            "content": command.content,
            "running": not ended,
            **({"exit_code": command.code} if ended else {}),
            **({"error": command.error} if command.error else {}),
            "started_at": rfc3339(command.started),
            **({"finished_at": rfc3339(command.finished)} if command.finished else {}),
        }
        return JSONResponse(said)

    async def logs(self, request: Request) -> Response:
        command = self.commands.get(request.path_params["id"])
        if command is None:
            raise Refusal(400, INVALID, f"command not found: {request.path_params['id']}")
        cursor = int(request.query_params.get("cursor") or 0)
        return PlainTextResponse(
            bytes(command.log[cursor:]),
            headers={"EXECD-COMMANDS-TAIL-CURSOR": str(len(command.log))},
        )

    # Sessions: a bash that keeps its folder and variables.

    async def open_session(self, request: Request) -> Response:
        asked = await _json(request)
        session = Session(await _bash(asked.get("cwd") or None))
        self.sessions[session.id] = session
        return JSONResponse({"session_id": session.id})

    async def run_session(self, request: Request) -> Response:
        asked = await _json(request)
        session = self._session(request)
        return StreamingResponse(session.run(asked["command"]), headers=STREAM, media_type=None)

    async def close_session(self, request: Request) -> Response:
        session = self._session(request)
        del self.sessions[session.id]
        session.process.kill()
        await session.process.wait()
        return Response()

    def _session(self, request: Request) -> Session:
        found = self.sessions.get(request.path_params["id"])
        if found is None:
            raise Refusal(
                404, "CONTEXT_NOT_FOUND", f"session {request.path_params['id']} not found"
            )
        return found

    # Terminals: a shell that starts with the first WebSocket and outlives it.

    async def open_terminal(self, request: Request) -> Response:
        asked = await _json(request)
        command = asked.get("command") or "" if self.argv else ""
        terminal = Terminal(asked.get("cwd") or None, command)
        self.terminals[terminal.id] = terminal
        return JSONResponse({"session_id": terminal.id}, 201)

    async def terminal_status(self, request: Request) -> Response:
        found = self._terminal(request.path_params["id"])
        said = {"running": found.running, "output_offset": len(found.log)}
        return JSONResponse({"session_id": found.id, **said})

    async def close_terminal(self, request: Request) -> Response:
        found = self._terminal(request.path_params["id"])
        del self.terminals[found.id]
        found.kill()
        return Response()

    async def join_terminal(self, socket: WebSocket) -> None:
        found = self._terminal(socket.path_params["id"])
        if found.socket is not None:
            text = f"another client is already connected to pty session {found.id}"
            raise Refusal(409, "ALREADY_CONNECTED", text)
        found.socket = socket
        try:
            await socket.accept()
            await found.serve(socket, int(socket.query_params.get("since") or 0))
        finally:
            found.socket = None

    def _terminal(self, name: str) -> Terminal:
        found = self.terminals.get(name)
        if found is None:
            raise Refusal(404, "CONTEXT_NOT_FOUND", f"pty session {name} not found")
        return found

    async def contexts(self, request: Request) -> Response:
        return JSONResponse([])

    async def code(self, request: Request) -> Response:
        raise Refusal(
            500,
            "RUNTIME_ERROR",
            "error running codes language runtime server not configured, "
            "please check your image runtime",
        )

    # Files.

    async def upload(self, request: Request) -> Response:
        head = f"Content-Type: {request.headers['content-type']}\r\n\r\n".encode()
        parser = email.parser.BytesParser(policy=email.policy.HTTP)
        parts = list(parser.parsebytes(head + await request.body()).iter_parts())
        for about, content in zip(parts[::2], parts[1::2], strict=True):
            metadata = json.loads(_payload(about))
            path = Path(metadata["path"])
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(_payload(content))
            _chmod(path, metadata.get("mode"))
        return Response()

    async def info(self, request: Request) -> Response:
        said = {}
        for name in request.query_params.getlist("path"):
            said[name] = _about(Path(name))
        return JSONResponse(said)

    async def download(self, request: Request) -> Response:
        path = Path(request.query_params["path"])
        try:
            data = path.read_bytes()
        except FileNotFoundError as error:
            raise _missing(f"open {path}: no such file or directory") from error
        headers = {"Content-Disposition": f'attachment; filename="{path.name}"'}
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", request.headers.get("range", ""))
        if wanted is None:
            headers["Accept-Ranges"] = "bytes"
            return Response(data, headers=headers, media_type="application/octet-stream")
        first = int(wanted[1])
        last = min(int(wanted[2] or len(data) - 1), len(data) - 1)
        if first >= len(data):
            headers["Content-Range"] = f"bytes */{len(data)}"
            return PlainTextResponse("invalid range: failed to overlap\n", 416, headers)
        headers["Content-Range"] = f"bytes {first}-{last}/{len(data)}"
        kind = "application/octet-stream"
        return Response(data[first : last + 1], 206, headers, media_type=kind)

    async def replace(self, request: Request) -> Response:
        counts = {}
        for name, change in (await _json(request)).items():
            path = Path(name)
            text = path.read_text()
            counts[name] = {"replacedCount": text.count(change["old"])}
            path.write_text(text.replace(change["old"], change["new"]))
        if request.query_params.get("verbose") == "true":
            return JSONResponse(counts)
        return Response()

    async def move(self, request: Request) -> Response:
        for item in await _json(request):
            Path(item["src"]).rename(item["dest"])
        return Response()

    async def permissions(self, request: Request) -> Response:
        for name, wanted in (await _json(request)).items():
            _chmod(Path(name), wanted.get("mode"))
        return Response()

    async def search(self, request: Request) -> Response:
        pattern = request.query_params.get("pattern") or "*"
        found = sorted(Path(request.query_params["path"]).rglob("*"))
        names = [path for path in found if fnmatch.fnmatch(path.name, pattern) and path.is_file()]
        return JSONResponse([_about(path) for path in names])

    async def remove(self, request: Request) -> Response:
        for name in request.query_params.getlist("path"):
            Path(name).unlink(missing_ok=True)
        return Response()

    async def listing(self, request: Request) -> Response:
        top = Path(request.query_params["path"])
        if not top.exists():
            raise _missing(f"lstat {top}: no such file or directory")
        depth = int(request.query_params.get("depth") or 1)
        found = [
            path for path in sorted(top.rglob("*")) if len(path.relative_to(top).parts) <= depth
        ]
        return JSONResponse([_about(path) for path in found])

    async def make_folders(self, request: Request) -> Response:
        for name, wanted in (await _json(request)).items():
            path = Path(name)
            path.mkdir(parents=True, exist_ok=True)
            try:
                _chmod(path, wanted.get("mode"))
            except PermissionError as error:
                raise Refusal(500, "RUNTIME_ERROR", str(error)) from error
        return Response()

    async def remove_folders(self, request: Request) -> Response:
        for name in request.query_params.getlist("path"):
            shutil.rmtree(name, ignore_errors=True)
        return Response()

    async def metrics(self, request: Request) -> Response:
        return JSONResponse(
            {
                "cpu_count": os.cpu_count(),
                "cpu_used_pct": 12.5,
                "mem_total_mib": 2048.0,
                "mem_used_mib": 64.5,
                "timestamp": time.time_ns() // 1_000_000,
            }
        )

    async def proxy(self, request: Request) -> Response:
        path = f"/{request.path_params['path']}"
        if request.url.query:
            path += f"?{request.url.query}"
        skipped = {"host", "connection", TOKEN.lower()}
        headers = {k: v for k, v in request.headers.items() if k not in skipped}
        base = f"http://127.0.0.1:{request.path_params['port']}"
        try:
            async with httpx.AsyncClient(timeout=30, trust_env=False) as client:
                body = await request.body()
                answer = await client.request(
                    request.method, base + path, headers=headers, content=body
                )
        except httpx.HTTPError:
            headers = {"X-Content-Type-Options": "nosniff"}
            return PlainTextResponse("Bad Gateway\n", 502, headers)
        kept = {k: v for k, v in answer.headers.items() if k in {"content-type", "server"}}
        return Response(answer.content, answer.status_code, kept)


@dataclass
class Session:
    """A bash with its own id."""

    process: asyncio.subprocess.Process
    id: str = field(default_factory=lambda: str(uuid.uuid4()))

    async def run(self, command: str) -> AsyncGenerator[bytes]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        began = time.monotonic()
        yield frame("init", text=self.id)
        yield frame("ping", text="pong")
        mark = secrets.token_hex(8)
        self.process.stdin.write(f"{command}\necho {mark} $?\n".encode())
        while line := await self.process.stdout.readline():
            text = line.decode().rstrip("\n")
            if text.startswith(mark):
                code = int(text.split()[1])
                break
            yield frame("stdout", text=text or "\n")
        if code:
            yield _failure(str(code), f"exit status {code}")
        else:
            yield _complete(began)


class Terminal:
    """A bash on a pseudo terminal, for one WebSocket at a time."""

    def __init__(self, cwd: str | None, command: str) -> None:
        self.id = str(uuid.uuid4())
        self.socket: WebSocket | None = None
        self.log = bytearray()
        self._words = ("bash", "--norc", "--noprofile", *(("-c", command) if command else ()))
        self._cwd = cwd
        self._process: asyncio.subprocess.Process | None = None
        self._master = -1
        self._printed = asyncio.Event()

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    def kill(self, number: int = signal.SIGKILL) -> None:
        if self._process is not None and self.running:
            os.killpg(self._process.pid, number)

    async def serve(self, socket: WebSocket, since: int) -> None:
        if not self.running:
            await self._start()
        if missed := bytes(self.log[since:]):
            await socket.send_bytes(struct.pack("!Bq", 3, since) + missed)
        await self._say(socket, type="connected", session_id=self.id, mode="pty")
        assert self._process is not None
        printing = asyncio.create_task(self._print(socket, len(self.log)))
        typing = asyncio.create_task(self._take(socket))
        ended = asyncio.create_task(self._process.wait())
        try:
            await asyncio.wait({typing, ended}, return_when=asyncio.FIRST_COMPLETED)
            if ended.done():
                await printing
                await self._say(socket, type="exit", exit_code=max(-1, ended.result()))
                await socket.close(1000, "process exited")
        finally:
            tasks = (printing, typing, ended)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _start(self) -> None:
        self._master, slave = os.openpty()
        os.set_blocking(self._master, False)
        self._resize(80, 24)
        own = 'tty=$1; shift; exec "$@" <>"$tty" >&0 2>&1'
        null = asyncio.subprocess.DEVNULL
        self._process = await asyncio.create_subprocess_exec(
            *("/bin/sh", "-c", own, "sh", os.ttyname(slave), *self._words),
            cwd=self._cwd,
            stdin=null,
            stdout=null,
            stderr=null,
            start_new_session=True,
        )
        asyncio.get_running_loop().add_reader(self._master, self._read)
        self._closing = asyncio.create_task(self._close_after(slave))

    async def _close_after(self, slave: int) -> None:
        assert self._process is not None
        await self._process.wait()
        os.close(slave)

    def _read(self) -> None:
        try:
            data = os.read(self._master, 1 << 15)
        except BlockingIOError:
            return
        except OSError:  # everybody has closed the other end
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(self._master)
            os.close(self._master)
            self._master = -1
        self.log += data
        self._printed.set()

    async def _print(self, socket: WebSocket, sent: int) -> None:
        while True:
            while sent < len(self.log):
                piece = bytes(self.log[sent : sent + (1 << 15)])
                sent += len(piece)
                await socket.send_bytes(b"\1" + piece)
            if self._master < 0:
                return
            self._printed.clear()
            await self._printed.wait()

    async def _take(self, socket: WebSocket) -> None:
        while True:
            message = await socket.receive()
            if message["type"] == "websocket.disconnect":
                return
            if (data := message.get("bytes")) is not None:
                if data[:1] == b"\0" and self._master >= 0:
                    os.write(self._master, data[1:])
                continue
            asked = json.loads(message["text"])
            match asked["type"]:
                case "resize":
                    self._resize(asked["cols"], asked["rows"])
                case "signal":
                    self.kill(signal.Signals[asked["signal"]])
                case "ping":
                    await self._say(socket, type="pong")
                case kind:
                    text = f'unknown frame type "{kind}"'
                    await self._say(socket, type="error", error=text, code="INVALID_FRAME")

    def _resize(self, columns: int, rows: int) -> None:
        if self._master >= 0:
            size = struct.pack("HHHH", rows, columns, 0, 0)
            fcntl.ioctl(self._master, termios.TIOCSWINSZ, size)

    async def _say(self, socket: WebSocket, **said: Any) -> None:
        await socket.send_text(json.dumps(said, separators=(",", ":")) + "\n")


async def _bash(folder: str | None) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *("bash", "--norc"),
        cwd=folder,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )


async def _follow(
    command: Command, lines: asyncio.Queue[bytes | None], limit: float | None
) -> None:
    process = command.process
    assert process.stdout is not None
    assert process.stderr is not None

    async def read(kind: str, reader: asyncio.StreamReader) -> None:
        while line := await reader.readline():
            command.log += line
            # Without its newline, an empty line as a single one.
            text = line.decode(errors="replace")
            text = text.removesuffix("\n") if text != "\n" else text
            lines.put_nowait(frame(kind, text=text))

    reading = asyncio.gather(read("stdout", process.stdout), read("stderr", process.stderr))
    try:
        await asyncio.wait_for(asyncio.shield(reading), limit)
    except TimeoutError:
        os.killpg(process.pid, signal.SIGKILL)
        await reading
    code = await process.wait()
    command.finished = datetime.now(UTC)
    command.code = code if code >= 0 else -1
    if code > 0:
        command.error = f"exit status {code}"
    elif code < 0:
        command.error = f"signal: {_SIGNALS.get(-code, f'signal {-code}')}"
    lines.put_nowait(None)


_SIGNALS = {1: "hangup", 2: "interrupt", 9: "killed", 15: "terminated"}


async def _background(command: Command) -> AsyncGenerator[bytes]:
    began = time.monotonic()
    yield frame("init", text=command.id)
    yield frame("ping", text="pong")
    yield _complete(began)


async def _foreground(
    command: Command, lines: asyncio.Queue[bytes | None]
) -> AsyncGenerator[bytes]:
    began = time.monotonic()
    yield frame("init", text=command.id)
    yield frame("ping", text="pong")
    while True:
        try:
            line = await asyncio.wait_for(lines.get(), PING)
        except TimeoutError:
            yield frame("ping", text="pong")
            continue
        if line is None:
            break
        yield line
    if command.code:
        yield _failure(str(command.code), command.error)
    else:
        yield _complete(began)


def _complete(began: float) -> bytes:
    return frame("execution_complete", execution_time=int((time.monotonic() - began) * 1000))


def _failure(value: str, trace: str) -> bytes:
    error = {"ename": "CommandExecError", "evalue": value, "traceback": [trace]}
    return frame("error", error=error)


async def _json(request: Request) -> Any:
    try:
        return json.loads(await request.body())
    except ValueError as error:
        raise Refusal(
            400,
            INVALID,
            "error parsing request, MAYBE invalid body format. invalid character 'n' looking for "
            "beginning of object key string",
        ) from error


def _payload(part: Any) -> bytes:
    data = part.get_payload(decode=True)
    assert isinstance(data, bytes)
    return data


def _chmod(path: Path, mode: int | None) -> None:
    if mode:
        path.chmod(int(str(mode), 8))


def _missing(text: str) -> Refusal:
    return Refusal(404, "FILE_NOT_FOUND", f"file not found. {text}")


def _about(path: Path) -> dict[str, Any]:
    try:
        found = path.lstat()
    except FileNotFoundError as error:
        text = f"file not found: {path}: lstat {path}: no such file or directory"
        raise _missing(text) from error
    return {
        "path": str(path),
        "type": "directory" if path.is_dir() else "file",
        "size": found.st_size,
        "modified_at": rfc3339(datetime.fromtimestamp(found.st_mtime, UTC)),
        "created_at": rfc3339(datetime.fromtimestamp(found.st_ctime, UTC)),
        "owner": _name(lambda: pwd.getpwuid(found.st_uid).pw_name, found.st_uid),
        "group": _name(lambda: grp.getgrgid(found.st_gid).gr_name, found.st_gid),
        "mode": int(f"{found.st_mode & 0o777:o}"),
    }


def _name(look: Callable[[], str], number: int) -> str:
    try:
        return look()
    except KeyError:
        return str(number)


async def bridge(port: int, path: str) -> asyncio.Server:
    """The container's one way out: a loopback port that leads to a unix socket of the host."""

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_unix_connection(path)
        except OSError:
            writer.close()
            return
        await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer))

    return await asyncio.start_server(accept, "127.0.0.1", port)


async def serve(path: str, token: str, *, argv: bool, way_out: tuple[int, str] | None) -> None:
    """Serve on a unix socket and, in a network of its own, on execd's port."""
    config = uvicorn.Config(
        Execd(token, argv=argv).app(), log_level="warning", lifespan="off", http="h11"
    )
    outer = socket.socket(socket.AF_UNIX)
    outer.bind(path)
    sockets = [outer]
    if way_out is not None:
        sockets.append(socket.create_server(("127.0.0.1", PORT)))
        await bridge(*way_out)
    await uvicorn.Server(config).serve(sockets=sockets)


def main() -> None:
    """`execd.py SOCKET TOKEN ARGV [PORT GATEWAY]`."""
    path, token, argv, *way_out = sys.argv[1:]
    out = (int(way_out[0]), way_out[1]) if way_out else None
    asyncio.run(serve(path, token, argv=argv == "argv", way_out=out))


if __name__ == "__main__":
    main()
