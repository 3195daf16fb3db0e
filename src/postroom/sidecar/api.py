"""The local HTTP API: how an agent, or a tool it calls, sends, confirms and works on tasks without speaking lines.

It listens on the sandbox's loopback and asks for no secret: whoever runs inside is the agent. Host and Origin
are checked all the same, so that no web page in a browser of the same machine can use it (DNS rebinding).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from postroom.errors import InvalidInput, NotFound, NotRunning
from postroom.http.hosts import check_host
from postroom.http.server import Answer, Request
from postroom.protocol.blobs import check_sha256, media_type_of
from postroom.sidecar.a2a.door import A2ADoor
from postroom.sidecar.adapters.makers import make_find, make_post, make_reply, make_seen, make_send
from postroom.sidecar.adapters.task_makers import (
    TASK_MAKERS,
    make_answer_task,
    make_cancel_task,
    make_delegate,
)
from postroom.sidecar.blobs import BlobRelay
from postroom.sidecar.operations import Operations
from postroom.sidecar.workapi import WorkRoutes

CURRENT = "current"
"""In a path, the task that the agent works on."""

MAX_WAIT = 60.0
"""Seconds that one request may wait for a task."""

_ROLES = ("worker", "requester")


class LocalApi:
    """Routes of the local API.

    Args:
        operations: what the agent can do.
        me: the answer to `whoami`.
        port: that it listens on, for the Host check.
        a2a: answers what is no route of this API; None for nobody.
        blobs: stores and fetches blobs; None where there is nobody to ask.
        work: runs commands and works on files; None for nobody.
    """

    def __init__(
        self,
        operations: Operations,
        me: Mapping[str, Any],
        port: int,
        a2a: A2ADoor | None = None,
        blobs: BlobRelay | None = None,
        work: WorkRoutes | None = None,
    ) -> None:
        self._operations = operations
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
            PostroomError: what the operation says.
        """
        check_host(request.headers.get("host", ""), request.headers.get("origin"), self._hosts)
        match request.target.split("/"):
            case ["", "v1", "delegate" | "tasks" as place, *rest]:
                return await self._tasks(request, [place, *rest])
            case ["", "v1", "blobs", *rest]:
                return await self._blob(request, rest)
            case ["", "v1", "run" | "files" | "folders" as place] if self._work is not None:
                return await _work(self._work, request, place)
            case ["", "v1", place]:
                return await self._mail(request, place)
        if self._a2a is not None:
            return await self._a2a.handle(request)
        raise _no_route(request)

    async def _mail(self, request: Request, place: str) -> Answer:
        do = self._operations
        match request.method, place:
            case "POST", "send":
                return _accepted(await do.send(make_send(_body(request))))
            case "POST", "reply":
                return _accepted(await do.reply(make_reply(_body(request))))
            case "POST", "post":
                return _accepted(await do.post(make_post(_body(request))))
            case "POST", "seen":
                action = make_seen(_body(request))
                do.seen(action)
                return 200, {"id": action.id, "state": "seen"}
            case "GET", "inbox":
                return 200, do.held()
            case "GET", "agents":
                return 200, {"agents": await do.find(make_find(request.query))}
            case "GET", "whoami":
                return 200, self._me
        raise _no_route(request)

    async def _tasks(self, request: Request, path: list[str]) -> Answer:
        do = self._operations
        match request.method, path:
            case "POST", ["delegate"]:
                given = await do.delegate(make_delegate(_body(request)))
                to = {"uid": given.worker.uid, "nick": given.worker.nick}
                return 200, {"id": given.id, "task": given.task, "to": to}
            case "GET", ["tasks"]:
                query = request.query
                return 200, {"tasks": await do.tasks(_role(query), open_only=_asked(query, "open"))}
            case "GET", ["tasks", task]:
                query = request.query
                wait, timeout = _asked(query, "wait"), _timeout(query)
                return 200, await do.task(task, wait=wait, timeout=timeout)
            case "POST", ["tasks", task, "cancel"]:
                return 200, await do.cancel_task(make_cancel_task(_body(request) | {"task": task}))
            case "POST", ["tasks", task, "answer"]:
                return 200, await do.answer_task(make_answer_task(_body(request) | {"task": task}))
            case "POST", ["tasks", task, word] if word in TASK_MAKERS:
                action = TASK_MAKERS[word](_body(request) | {"task": _named(task)})
                await do.on_task(action)
                return 200, {"task": task, "state": "accepted"}
        raise _no_route(request)

    async def _blob(self, request: Request, path: list[str]) -> Answer:
        if self._blobs is None:
            raise NotRunning("this worker has no control plane to keep blobs")
        match request.method, path:
            case "PUT", [] if request.content is not None:
                media_type = media_type_of(request.headers.get("content-type", ""))
                return 201, await self._blobs.put(request.content, media_type)
            case "GET", [sha256]:
                return 200, await self._blobs.get(check_sha256(sha256))
        raise _no_route(request)


async def _work(work: WorkRoutes, request: Request, place: str) -> Answer:
    match request.method, place:
        case "POST", "run":
            return await work.run(_body(request))
        case "GET", "folders":
            return await work.folder(request)
        case _, "files" if (answer := await work.file(request)) is not None:
            return answer
    raise _no_route(request)


def _accepted(sent: str) -> Answer:
    return 200, {"id": sent, "state": "accepted"}


def _no_route(request: Request) -> NotFound:
    return NotFound(f"there is no {request.method} {request.path[:100]}")


def _named(task: str) -> str:
    return "" if task == CURRENT else task


def _asked(query: Mapping[str, str], name: str) -> bool:
    return query.get(name, "") in {"1", "true"}


def _role(query: Mapping[str, str]) -> str:
    role = query.get("role", "")
    if role and role not in _ROLES:
        raise InvalidInput(f"'role' has to be one of {', '.join(_ROLES)}")
    return role


def _timeout(query: Mapping[str, str]) -> float:
    try:
        seconds = float(query.get("timeout") or MAX_WAIT)
    except ValueError as error:
        raise InvalidInput("'timeout' has to be a number of seconds") from error
    if not seconds >= 0:
        raise InvalidInput("'timeout' has to be a number of seconds")
    return min(seconds, MAX_WAIT)


def _body(request: Request) -> dict[str, Any]:
    if not request.is_json:
        raise InvalidInput("the body has to be JSON", remedy="Content-Type: application/json")
    try:
        record = json.loads(request.body)
    except (ValueError, RecursionError) as error:
        raise InvalidInput("the body is no JSON") from error
    if not isinstance(record, dict):
        raise InvalidInput("the body is no JSON object")
    return record
