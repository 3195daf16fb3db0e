"""The worker as an A2A server: its card, and JSON-RPC by which an A2A client gives it tasks (A2A 1.0, section 9).

A task that comes in here goes the one way that all tasks go: the worker sends itself a request through its own
inbox. So it is durable before it is answered, and it waits its turn.

Who may call is decided by who listens: the port's owner checks Host and Origin, the socket lies in a closed folder.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping
from typing import Any, Protocol

from postroom.a2a.cards import CARD_PATH, SENDER_TOKEN, Card
from postroom.a2a.messages import context_of
from postroom.a2a.rpc import Code, RpcError, id_of, read_call, read_json, refusal, result
from postroom.errors import Conflict, Forbidden, NotFound, PostroomError
from postroom.protocol.tasks import TaskState
from postroom.sidecar.a2aparams import (
    Listing,
    check_message,
    history_length,
    name_param,
    page,
    shortened,
)
from postroom.sidecar.adapters import AnswerTask, CancelTask, Delegate, Delegated
from postroom.sidecar.httpd import Answer, Request

CARD_PATHS = (CARD_PATH, "/.well-known/agent.json")
"""Where A2A 1.0 looks for a card, and where its versions before 0.3 did."""

ENDPOINT = "/a2a"
VERSION = "1.0"

SLICE = 20.0
"""Seconds of one wait for a task; between two, it is looked at whether the client still waits."""

MAX_WAIT = 3600.0
"""Seconds after which a call that waits for its task is answered with the task as it is."""

PUSH = frozenset(
    f"{verb}TaskPushNotificationConfig{plural}"
    for verb, plural in (("Create", ""), ("Get", ""), ("List", "s"), ("Delete", ""))
)
UNSUPPORTED = frozenset({"SendStreamingMessage", "SubscribeToTask", "GetExtendedAgentCard"})
"""Methods of A2A 1.0 for which the card states no capability."""


class Tasks(Protocol):
    """Tasks as an A2A server needs them. A task is known to all of it as soon as `delegate` has returned."""

    async def delegate(self, action: Delegate, /) -> Delegated:
        """Ask for a task; returns when the request is stored.

        Raises:
            PostroomError: it was not accepted; also by the others.
        """
        ...

    async def task(self, task_id: str, /, *, wait: bool, timeout: float) -> Mapping[str, Any]:
        """The TaskView of a task that this worker does or asked for.

        Args:
            task_id: of it.
            wait: until it is final or interrupted.
            timeout: seconds for that.

        Raises:
            NotFound: there is none.
        """
        ...

    async def tasks(self, role: str, /, *, open_only: bool) -> list[dict[str, Any]]:
        """TaskViews without artifacts."""
        ...

    async def snapshot(self, task_id: str, /) -> dict[str, Any]:
        """The same task as an A2A Task.

        Raises:
            NotFound: there is none.
        """
        ...

    async def cancel_task(self, action: CancelTask, /) -> Mapping[str, Any]:
        """End a task that this worker asked for; its TaskView.

        Raises:
            Conflict: it has ended.
        """
        ...

    async def answer_task(self, action: AnswerTask, /) -> Mapping[str, Any]:
        """Answer what a task that this worker asked for waits for; its TaskView.

        Raises:
            Conflict: it waits for nothing.
        """
        ...


class A2AServer:
    """The A2A routes of one worker.

    Args:
        tasks: of it.
        own: uid of the worker.
        card: the worker's, {} for none.
        port: that the local API listens on.
    """

    def __init__(self, tasks: Tasks, own: str, card: Card, port: int) -> None:
        self._tasks = tasks
        self._own = own
        self._card = served_card(card, port) if card else None
        self._methods = {
            "SendMessage": self._send,
            "GetTask": self._get,
            "ListTasks": self._list,
            "CancelTask": self._cancel,
        }

    async def handle(self, request: Request) -> Answer:
        """Answer one request.

        Raises:
            NotFound: there is no such route, or no card.
        """
        if request.method == "GET" and request.target in CARD_PATHS:
            if self._card is None:
                raise NotFound("this worker has no Agent Card")
            return 200, self._card
        if request.method == "POST" and request.target == ENDPOINT:
            return 200, await self._answer(request)
        raise NotFound(f"there is no {request.method} {request.path[:100]}")

    async def _answer(self, request: Request) -> dict[str, Any]:
        call_id = None
        try:
            if not request.is_json:
                raise RpcError(Code.INVALID_REQUEST, "the Content-Type has to be application/json")
            record = read_json(request.body)
            call_id = id_of(record)
            method, params = read_call(record)
            _check_version(request)
            perform = self._methods.get(method)
            if perform is None:
                raise _not_offered(method)
            return result(call_id, await perform(params, request))
        except RpcError as error:
            return refusal(call_id, error)
        except PostroomError as error:
            return refusal(call_id, RpcError.of(error))

    async def _send(self, params: dict[str, Any], request: Request) -> dict[str, Any]:
        message, text = check_message(params)
        configuration = params.get("configuration") or {}
        if not isinstance(configuration, dict):
            raise RpcError(Code.INVALID_PARAMS, "'configuration' has to be an object")
        if configuration.get("taskPushNotificationConfig"):
            raise RpcError(Code.PUSH_NOTIFICATION_NOT_SUPPORTED, "there are no push notifications")
        limit = history_length(configuration)
        if message.get("taskId"):
            task = await self._follow_up(message, text)
        else:
            key = hashlib.sha256(message["messageId"].encode("utf-8", "replace")).hexdigest()
            ask = Delegate(self._own, "", text, key=f"a2a:{key}", context=context_of(message))
            task = (await self._tasks.delegate(ask)).task
        if configuration.get("returnImmediately") is not True:
            await self._settled(task, request)
        return {"task": shortened(await self._tasks.snapshot(task), limit)}

    async def _follow_up(self, message: dict[str, Any], text: str) -> str:
        task = name_param(message, "taskId")
        view = await self._found(task)
        context = context_of(message)
        if context and context != view["context"]:
            raise RpcError(Code.INVALID_PARAMS, "the task belongs to another context", taskId=task)
        try:
            await self._tasks.answer_task(AnswerTask(task, text))
        except (Conflict, Forbidden) as error:
            raise RpcError(Code.UNSUPPORTED_OPERATION, error.message, taskId=task) from error
        return task

    async def _settled(self, task: str, request: Request) -> None:
        """Wait until the task is final or interrupted, for as long as the client does."""
        clock = asyncio.get_running_loop().time
        end = clock() + MAX_WAIT
        while not request.abandoned() and (left := end - clock()) > 0:
            view = await self._tasks.task(task, wait=True, timeout=min(SLICE, left))
            state = TaskState(view["state"])
            if state.terminal or state.interrupted:
                return

    async def _get(self, params: dict[str, Any], _: Request) -> dict[str, Any]:
        task, limit = name_param(params, "id"), history_length(params)
        await self._found(task)
        return shortened(await self._tasks.snapshot(task), limit)

    async def _list(self, params: dict[str, Any], _: Request) -> dict[str, Any]:
        listing = Listing.of(params)
        found, token, total = page(await self._tasks.tasks("worker", open_only=False), listing)
        tasks = []
        for task in found:
            snapshot = shortened(await self._tasks.snapshot(task), listing.history)
            if not listing.artifacts:
                snapshot.pop("artifacts", None)
            tasks.append(snapshot)
        return {
            "tasks": tasks,
            "nextPageToken": token,
            "pageSize": listing.size,
            "totalSize": total,
        }

    async def _cancel(self, params: dict[str, Any], _: Request) -> dict[str, Any]:
        task = name_param(params, "id")
        await self._found(task)
        try:
            await self._tasks.cancel_task(CancelTask(task))
        except (Conflict, Forbidden, NotFound) as error:
            # It is there (see above): so it has ended, or somebody else asked for it.
            raise RpcError(Code.TASK_NOT_CANCELABLE, error.message, taskId=task) from error
        return await self._tasks.snapshot(task)

    async def _found(self, task: str) -> Mapping[str, Any]:
        """The view of a task that this worker does; one that it only asked for is another's."""
        try:
            view = await self._tasks.task(task, wait=False, timeout=0)
        except NotFound as error:
            raise RpcError(Code.TASK_NOT_FOUND, "there is no such task", taskId=task) from error
        if view["worker"]["uid"] != self._own:
            raise RpcError(Code.TASK_NOT_FOUND, "there is no such task", taskId=task)
        return view


def served_card(card: Card, port: int) -> Card:
    """The worker's card as its own server gives it: with the address of this server first.

    What its bus address demands of callers is nothing that a caller over HTTP could do, so it is not required here.
    """
    own = {
        "url": f"http://127.0.0.1:{port}{ENDPOINT}",
        "protocolBinding": "JSONRPC",
        "protocolVersion": VERSION,
    }
    capabilities = dict(card.get("capabilities", {}))
    if "extensions" in capabilities:
        capabilities["extensions"] = [_optional(each) for each in capabilities["extensions"]]
    interfaces = [own, *card.get("supportedInterfaces", [])]
    return {**card, "supportedInterfaces": interfaces, "capabilities": capabilities}


def _optional(extension: dict[str, Any]) -> dict[str, Any]:
    if extension.get("uri") != SENDER_TOKEN:
        return extension
    return {name: value for name, value in extension.items() if name != "required"}


def _check_version(request: Request) -> None:
    """A client that names no version means 0.3 (section 3.6.2), which names its methods in another way."""
    version = request.headers.get("a2a-version", "") or request.query.get("A2A-Version", "")
    if version.split(".")[:2] != VERSION.split("."):
        said = f"only A2A {VERSION} is spoken here: send the header A2A-Version: {VERSION}"
        raise RpcError(Code.VERSION_NOT_SUPPORTED, said)


def _not_offered(method: str) -> RpcError:
    if method in PUSH:
        return RpcError(Code.PUSH_NOTIFICATION_NOT_SUPPORTED, "there are no push notifications")
    if method in UNSUPPORTED:
        return RpcError(Code.UNSUPPORTED_OPERATION, f"{method} is not offered here")
    return RpcError(Code.METHOD_NOT_FOUND, f"there is no method {method[:80]!r}")
