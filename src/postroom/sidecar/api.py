"""The local HTTP API, by which an agent or its tools send, confirm and work on tasks without printing lines.

`protocol.verbs` has the routes and their fields. The API listens on the sandbox's loopback and asks for no secret:
every process inside is the agent. It checks Host and Origin all the same, so that no web page in a browser of the same
machine can use it (DNS rebinding).
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Mapping
from dataclasses import asdict
from typing import Any

from postroom.errors import InvalidInput, MessageTooLarge, NotFound, NotRunning, Refused
from postroom.http.hosts import check_host
from postroom.http.server import Answer, Content, HttpRequest
from postroom.protocol.blobs import media_type_of
from postroom.protocol.limits import MAX_DEPTH, MAX_VALUES, MAX_WRITE
from postroom.protocol.records import AS_FILE
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
from postroom_a2a import strict_json
from postroom_a2a.bounds import ConcurrencyLimit

MCP = "/mcp"
"""Path of the tools (`sidecar.tools`)."""

AT_ONCE = 8
"""Commands and file operations at a time; each may hold some MiB."""


class LocalApi:
    """Routes of the local API.

    Args:
        me: the answer to `whoami`.
        port: the API's own, for the Host check.
        a2a: answers requests that match no route of this API.
        blobs: None where no control plane can be asked.
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
            Forbidden: the request comes from a web page, or names another host.
            PostroomError: the reason why the action was refused.
        """
        check_host(request.headers.get("host", ""), request.headers.get("origin"), self._hosts)
        found = find_route(request.method, request.target)
        if found is not None:
            return await self._perform(found[0].read(_record(request, *found)), request)
        if (request.method, request.target) == ("POST", MCP):
            return await self._call_tool(request)
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

    async def _call_tool(self, request: HttpRequest) -> Answer:
        from postroom.sidecar.tools import answer  # most agents have no such client

        return await answer(_body(request), self._actions, self._me)

    def _blob_relay(self) -> BlobRelay:
        if self._blobs is None:
            raise NotRunning("this worker has no control plane that could store blobs")
        return self._blobs


def _record(request: HttpRequest, action: type[Action], fields: dict[str, str]) -> dict[str, Any]:
    """The fields of the request: from its path, and its query or its body."""
    if request.method != "POST":
        return read_query(action, request.query) | fields
    record = _body(request)
    if not isinstance(record, dict):
        raise InvalidInput("the request's body is not a JSON object")
    return record | fields


def _body(request: HttpRequest) -> Any:
    """The JSON value of a body, bounded."""
    if not request.is_json:
        raise InvalidInput(
            "the request's Content-Type is not JSON", remedy="Content-Type: application/json"
        )
    try:
        return strict_json.bounded(request.body, MAX_DEPTH, MAX_VALUES)
    except strict_json.TooMuch as error:
        raise MessageTooLarge(f"the request's body has {error}", remedy=AS_FILE) from error
    except ValueError as error:
        raise InvalidInput("the request's body is not valid JSON") from error


class WorkActions:
    """Carries out an agent's commands and file operations."""

    def __init__(self, workstation: Workstation) -> None:
        self._workstation = workstation
        self._limit = ConcurrencyLimit(
            AT_ONCE,
            lambda: Refused(
                f"{AT_ONCE} commands and file operations run already",
                remedy="wait until one has ended",
            ),
        )

    async def perform(
        self,
        action: RunCommand | ReadFile | WriteFile | RemoveFile | ListFolder,
        content: AsyncIterable[bytes] | None = None,
    ) -> Answer:
        """Carry out one action; `content` is the new content of a file.

        Raises:
            Refused: too many actions are under way.
            PostroomError: the action failed.
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
        raise InvalidInput("the request to write a file has no body")


async def _whole(content: AsyncIterable[bytes]) -> bytes:
    body = bytearray()
    async for piece in content:
        body += piece
        if len(body) > MAX_WRITE:
            raise MessageTooLarge(f"the file's content has more than {MAX_WRITE} bytes")
    return bytes(body)


def _content(data: bytes) -> Content:
    async def pieces() -> AsyncIterator[bytes]:
        yield data

    headers = (
        ("content-type", "application/octet-stream"),
        ("content-length", str(len(data))),
    )
    return Content(headers, pieces(), lambda: None)
