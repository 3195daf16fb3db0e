"""The part of the local API that runs commands and works on files of the workspace."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Mapping
from dataclasses import asdict
from typing import Any

from postroom.errors import InvalidInput, MessageTooLarge, Refused
from postroom.http.server import Answer, Content, Request
from postroom.sidecar.workstation import MAX_READ, MAX_WRITE, Command, Workstation
from postroom_a2a.limits import ConcurrencyLimit

AT_ONCE = 8
"""Commands and file operations that are under way; each may hold some MiB."""

MAX_SECONDS = 3600.0
FILE_MODE = 0o644


class WorkRoutes:
    """Routes for commands and files.

    Args:
        workstation: does the work.
    """

    def __init__(self, workstation: Workstation) -> None:
        self._workstation = workstation
        self._limit = ConcurrencyLimit(
            AT_ONCE,
            lambda: Refused(f"{AT_ONCE} commands and files are worked on", remedy="wait for one"),
        )

    async def run(self, body: Mapping[str, Any]) -> Answer:
        """Run the command of `body` to its end.

        Raises:
            InvalidInput: the body says something else.
            Refused: too much is under way.
            PostroomError: it could not be run.
        """
        command = _command(body)
        with self._limit.slot():
            return 200, asdict(await self._workstation.run(command))

    async def file(self, request: Request) -> Answer | None:
        """Read, write or remove the file that the query names; None for another method. Raises as `run`."""
        query = request.query
        path = query.get("path", "")
        with self._limit.slot():
            match request.method:
                case "GET":
                    offset, length = _number(query, "offset", 0), _number(query, "length", MAX_READ)
                    return 200, _content(await self._workstation.read(path, offset, length))
                case "PUT" if request.content is not None:
                    content = await _whole(request.content)
                    await self._workstation.write(path, content, _mode(query))
                    return 201, {"path": path, "size": len(content)}
                case "DELETE":
                    await self._workstation.remove(path)
                    return 200, {"path": path}
        return None

    async def folder(self, request: Request) -> Answer:
        """What is in the folder that the query names. Raises as `run`."""
        with self._limit.slot():
            found = await self._workstation.entries(request.query.get("path", ""))
        return 200, {"entries": [asdict(entry) for entry in found]}


def _command(body: Mapping[str, Any]) -> Command:
    words, env = body.get("command"), body.get("env") or {}
    if not isinstance(words, list) or not words or not all(map(_is_text, words)) or not words[0]:
        raise InvalidInput("'command' has to be a list of words")
    if not isinstance(env, dict) or not all(map(_is_text, [*env, *env.values()])):
        raise InvalidInput("'env' has to be a table of texts")
    if any("=" in name or not name for name in env):
        raise InvalidInput("'env' has a name that is none")
    cwd, timeout = body.get("cwd") or "", body.get("timeout", Command.timeout)
    if not _is_text(cwd):
        raise InvalidInput("'cwd' has to be a path")
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout > 0:
        raise InvalidInput("'timeout' has to be a number of seconds")
    return Command(tuple(words), cwd, min(float(timeout), MAX_SECONDS), env)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and "\0" not in value


def _number(query: Mapping[str, str], name: str, default: int) -> int:
    try:
        number = int(query.get(name) or default)
    except ValueError as error:
        raise InvalidInput(f"'{name}' has to be a number of bytes") from error
    if not 0 <= number < 1 << 62:
        raise InvalidInput(f"'{name}' has to be a number of bytes")
    return number


def _mode(query: Mapping[str, str]) -> int:
    try:
        mode = int(query.get("mode") or f"{FILE_MODE:o}", 8)
    except ValueError as error:
        raise InvalidInput("'mode' has to be permission bits in octal, such as 644") from error
    if not 0 <= mode <= 0o777:
        raise InvalidInput("'mode' has to be permission bits in octal, such as 644")
    return mode


async def _whole(content: AsyncIterable[bytes]) -> bytes:
    body = bytearray()
    async for piece in content:
        body += piece
        if len(body) > MAX_WRITE:
            raise MessageTooLarge(f"a file is written with at most {MAX_WRITE} bytes")
    return bytes(body)


def _content(data: bytes) -> Content:
    async def pieces() -> AsyncIterator[bytes]:
        yield data

    headers = (
        ("content-type", "application/octet-stream"),
        ("content-length", str(len(data))),
    )
    return Content(headers, pieces(), lambda: None)
