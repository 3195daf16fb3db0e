"""The local HTTP API: how an agent, or a tool it calls, sends, confirms and works on tasks without speaking lines.

Its routes, and what they take, are in `protocol.verbs`. It listens on the sandbox's loopback and asks for no secret:
whoever runs inside is the agent. Host and Origin are checked all the same, so that no web page in a browser of the same
machine can use it (DNS rebinding).
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterable, AsyncIterator, Mapping
from dataclasses import asdict
from typing import Any

from postroom.errors import InvalidInput, MessageTooLarge, NotFound, NotRunning, Refused
from postroom.http.hosts import check_host
from postroom.http.server import Answer, Content, HttpRequest
from postroom.protocol.blobs import media_type_of
from postroom.protocol.limits import MAX_WRITE
from postroom.protocol.verbs import (
    Action,
    GetBlob,
    ListFolder,
    PutBlob,
    ReadFile,
    RemoveFile,
    RunCommand,
    WhoAmI,
    WriteFile,
    find_route,
    read_query,
)
from postroom.sidecar.a2a.routes import A2ARoutes
from postroom.sidecar.actions import Actions
from postroom.sidecar.control_client import BlobRelay
from postroom.sidecar.workstation import Workstation
from postroom_a2a.limits import ConcurrencyLimit

AT_ONCE = 8
"""Commands and file operations that are under way; each may hold some MiB."""


class LocalApi:
    """Routes of the local API.

    Args:
        me: the answer to `whoami`.
        port: that it listens on, for the Host check.
        a2a: answers what is not a route of this API; None for nobody.
        blobs: stores and fetches blobs; None where there is nobody to ask.
        work: runs commands and works on files; None for nobody.
    """

    def __init__(
        self,
        actions: Actions,
        me: Mapping[str, Any],
        port: int,
        a2a: A2ARoutes | None = None,
        blobs: BlobRelay | None = None,
        work: WorkActions | None = None,
    ) -> None:
        self._actions = actions
        self._me = dict(me)
        self._hosts = frozenset({f"127.0.0.1:{port}", f"localhost:{port}"})
        self._a2a = a2a
        self._blobs = blobs
        self._work = work

    async def handle(self, request: HttpRequest) -> Answer:
        """Answer one request.

        Raises:
            Forbidden: it comes from a web page, or under another host name.
            PostroomError: why the action was refused.
        """
        check_host(request.headers.get("host", ""), request.headers.get("origin"), self._hosts)
        found = find_route(request.method, request.target)
        if found is not None:
            return await self._perform(found[0].read(_record(request, *found)), request)
        if self._a2a is not None:
            return await self._a2a.handle(request)
        raise NotFound(f"there is no {request.method} {request.path[:100]}")

    async def _perform(self, action: Action, request: HttpRequest) -> Answer:
        match action:
            case WhoAmI():
                return 200, self._me
            case PutBlob() if request.content is not None:
                media_type = media_type_of(request.headers.get("content-type", ""))
                return 201, await self._blob_relay().put(request.content, media_type)
            case GetBlob():
                return 200, await self._blob_relay().get(action.sha256)
            case RunCommand() | ReadFile() | WriteFile() | RemoveFile() | ListFolder():
                if self._work is not None:
                    return await self._work.perform(action, request.content)
        return 200, await self._actions.perform(action)

    def _blob_relay(self) -> BlobRelay:
        if self._blobs is None:
            raise NotRunning("this worker has no control plane to keep blobs")
        return self._blobs


def _record(request: HttpRequest, action: type[Action], fields: dict[str, str]) -> dict[str, Any]:
    """What the request says, wherever it says it."""
    if request.method != "POST":
        return read_query(action, request.query) | fields
    if not request.is_json:
        raise InvalidInput("the body has to be JSON", remedy="Content-Type: application/json")
    try:
        record = json.loads(request.body)
    except (ValueError, RecursionError) as error:
        raise InvalidInput("the body cannot be read as JSON") from error
    if not isinstance(record, dict):
        raise InvalidInput("the body has to be a JSON object")
    return record | fields


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
