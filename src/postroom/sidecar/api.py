"""The local HTTP API: how an agent, or a tool it calls, sends, confirms and works on tasks without speaking lines.

Its routes, and what they take, are in `protocol.verbs`. It listens on the sandbox's loopback and asks for no secret:
whoever runs inside is the agent. Host and Origin are checked all the same, so that no web page in a browser of the same
machine can use it (DNS rebinding).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from postroom.errors import InvalidInput, NotFound, NotRunning
from postroom.http.hosts import check_host
from postroom.http.server import Answer, Request
from postroom.protocol.blobs import media_type_of
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
from postroom.sidecar.a2a.door import A2ADoor
from postroom.sidecar.actions import Actions
from postroom.sidecar.blobs import BlobRelay
from postroom.sidecar.workapi import WorkActions


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
        a2a: A2ADoor | None = None,
        blobs: BlobRelay | None = None,
        work: WorkActions | None = None,
    ) -> None:
        self._actions = actions
        self._me = dict(me)
        self._hosts = frozenset({f"127.0.0.1:{port}", f"localhost:{port}"})
        self._a2a = a2a
        self._blobs = blobs
        self._work = work

    async def handle(self, request: Request) -> Answer:
        """Answer one request.

        Raises:
            Forbidden: it comes from a web page, or under another host name.
            NotFound: there is no such route.
            PostroomError: why the action was refused.
        """
        check_host(request.headers.get("host", ""), request.headers.get("origin"), self._hosts)
        found = find_route(request.method, request.target)
        if found is not None:
            return await self._perform(found[0].read(_record(request, *found)), request)
        if self._a2a is not None:
            return await self._a2a.handle(request)
        raise NotFound(f"there is no {request.method} {request.path[:100]}")

    async def _perform(self, action: Action, request: Request) -> Answer:
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


def _record(request: Request, action: type[Action], fields: dict[str, str]) -> dict[str, Any]:
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
