"""The part of the local API that runs commands and works on files of the workspace."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator
from dataclasses import asdict
from typing import Any

from postroom.errors import InvalidInput, MessageTooLarge, Refused
from postroom.http.server import Answer, Content
from postroom.protocol.verbs import ListFolder, ReadFile, RemoveFile, RunCommand, WriteFile
from postroom.sidecar.workstation import MAX_WRITE, Workstation
from postroom_a2a.limits import ConcurrencyLimit

AT_ONCE = 8
"""Commands and file operations that are under way; each may hold some MiB."""


class WorkActions:
    """Carries out what an agent asks of its workstation."""

    def __init__(self, workstation: Workstation) -> None:
        self._workstation = workstation
        self._limit = ConcurrencyLimit(
            AT_ONCE,
            lambda: Refused(f"{AT_ONCE} commands and files are worked on", remedy="wait for one"),
        )

    async def perform(
        self,
        action: RunCommand | ReadFile | WriteFile | RemoveFile | ListFolder,
        content: AsyncIterable[bytes] | None = None,
    ) -> Answer:
        """Carry out one action; `content` is what a file is made of.

        Raises:
            Refused: too much is under way.
            PostroomError: it could not be carried out.
        """
        with self._limit.slot():
            return await self._perform(action, content)

    async def _perform(self, action: Any, content: AsyncIterable[bytes] | None) -> Answer:
        do = self._workstation
        match action:
            case RunCommand():
                return 200, asdict(await do.run(action))
            case ReadFile():
                return 200, _content(await do.read(action.path, action.offset, action.length))
            case WriteFile() if content is not None:
                data = await _whole(content)
                await do.write(action.path, data, action.mode)
                return 201, {"path": action.path, "size": len(data)}
            case RemoveFile():
                await do.remove(action.path)
                return 200, {"path": action.path}
            case ListFolder():
                return 200, {"entries": [asdict(entry) for entry in await do.entries(action.path)]}
        raise InvalidInput("a file is written with a content")


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
