"""A2A over REST (HTTP+JSON; A2A 1.0, section 11, and 0.3): a path for each method.

REST of 0.3 is ProtoJSON of the protobuf types of 0.3, which differ from its JSON-RPC objects: a message has `content`,
enums are spelled as in 1.0 but for one, and a push notification config has a resource name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from postroom_a2a.ecma_json import dumps
from postroom_a2a.errors import PostroomError
from postroom_a2a.http import paths
from postroom_a2a.http.cards import with_legacy
from postroom_a2a.http.errors import (
    BLOCKING,
    STREAMING,
    V03,
    V10,
    headers_of,
    rest_status,
    version_of,
)
from postroom_a2a.http.exchange import (
    EXTENSIONS,
    JSON,
    VERSION,
    Asked,
    Exchange,
    Front,
    read_json,
    send_events,
)
from postroom_a2a.http.paths import LEGACY_PREFIX, Route
from postroom_a2a.http.v03_objects import (
    GOING_ON,
    Malformed,
    part_down,
    part_up,
    push_down,
    push_up,
)
from postroom_a2a.operations import Call, Operations
from postroom_a2a.params import camel
from postroom_a2a.rpc import Code, RpcError
from postroom_a2a.strict_json import loads
from postroom_a2a.task_state import TaskState

DOOR = "a2a+rest"

Params = dict[str, Any]


class Rest:
    """The REST binding of the agents behind `front`."""

    def __init__(self, front: Front) -> None:
        self._front = front

    async def serve(self, exchange: Exchange) -> None:
        """Answer a request; raises ClientGone."""
        try:
            caller = await self._front.admit(exchange)
            await self._call(exchange, caller)
        except (RpcError, PostroomError) as error:
            if exchange.started:
                raise
            status, document = rest_status(error)
            await exchange.answer(status, dumps(document), JSON, *headers_of(status, error))

    async def _call(self, exchange: Exchange, caller: str) -> None:
        path, legacy = _without_prefix(exchange.path)
        if not path:
            await self._unknown(exchange, ("POST",))  # JSON-RPC is there
            return
        found = paths.find("GET" if exchange.method == "HEAD" else exchange.method, path)
        if found.route is None:
            await self._unknown(exchange, found.verbs)
            return
        route, version = found.route, _version(exchange, legacy=legacy)
        params = await self._params(exchange, route, found.named, version)
        operations = await self._front.operations_of(exchange, Asked(route.method, DOOR, version))
        parameters = {**exchange.parameters(), VERSION: V10}
        call = Call(None, route.method, params, False, parameters, caller, version=version)
        if route.method in STREAMING:
            await self._stream(exchange, operations, call)
            return
        work = operations.answer(call)
        result = await (exchange.while_there(work) if route.method in BLOCKING else work)
        if version == V03:
            result = dumps(answer_down(route.method, loads(result)))
        await exchange.answer(200, result or b"{}", JSON)

    async def _params(
        self, exchange: Exchange, route: Route, named: Params, version: str
    ) -> Params:
        if route.verb != "POST" or exchange.method == "GET":
            query = exchange.query()
            for name in (VERSION, EXTENSIONS):
                query.pop(name, None)
            return {**paths.typed(query), **named}
        body = await exchange.body(self._front.max_body)
        said: Any = {}
        if body or "{" not in route.path:
            said = read_json(exchange, body, self._front.max_values)
        if not isinstance(said, dict):
            raise RpcError(Code.INVALID_PARAMS, "the body has to be an object")
        if version == V03 and route.method in ("SendMessage", "SendStreamingMessage"):
            return send_up(said)
        if version == V03 and route.method == "CreateTaskPushNotificationConfig":
            return push_request_up(named["taskId"], said)
        return {**said, **named}

    async def _stream(self, exchange: Exchange, operations: Operations, call: Call) -> None:
        def failed(error: Exception) -> bytes:
            if not isinstance(error, RpcError | PostroomError):
                raise error
            return dumps(rest_status(error)[1])

        write: Callable[[bytes], bytes] = _same if call.version == V10 else _down
        with self._front.streaming(exchange, call.caller):
            await send_events(exchange, operations.stream(call), write, failed, self._front.beat)

    async def _unknown(self, exchange: Exchange, verbs: tuple[str, ...]) -> None:
        """Answer 404, or 405 for a path that takes other verbs."""
        asked = f"{exchange.method} {exchange.path[:100]}"
        error = RpcError(Code.METHOD_NOT_FOUND, f"an A2A agent has no {asked}")
        status, document = rest_status(error)
        if not verbs:
            await exchange.answer(status, dumps(document), JSON)
            return
        document["error"]["code"] = 405
        allow = ", ".join(verbs).encode()
        await exchange.answer(405, dumps(document), JSON, (b"allow", allow))


def _same(result: bytes) -> bytes:
    return result


def _down(result: bytes) -> bytes:
    return dumps(event_down(loads(bytes(result))))


def _without_prefix(path: str) -> tuple[str, bool]:
    """The path below the prefix of 0.3, and whether it had one."""
    legacy = path.startswith(f"{LEGACY_PREFIX}/")
    return (path.removeprefix(LEGACY_PREFIX) if legacy else path).rstrip("/"), legacy


def _version(exchange: Exchange, *, legacy: bool) -> str:
    """The version of a request.

    Raises:
        RpcError: it is not spoken here; a request without one below the paths of 1.0 is of no version.
    """
    parameters = exchange.parameters()
    if not legacy and not parameters.get(VERSION, "").strip():
        text = f"send the header {VERSION}: {V10}; without it the paths are those of {V03}, below {LEGACY_PREFIX}"
        raise RpcError(Code.VERSION_NOT_SUPPORTED, text)
    return version_of(parameters)


Record = dict[str, Any]

_CANCELED = TaskState.CANCELED.a2a
_CANCELLED = "TASK_STATE_CANCELLED"
"""The one enum that 1.0 spells otherwise."""

_FILE = {"fileWithUri": "uri", "fileWithBytes": "bytes", "mimeType": "mimeType", "name": "name"}
"""Members of a file, and their names over JSON-RPC."""


def send_up(body: Record) -> Record:
    """The parameters of a send, from a SendMessageRequest.

    Raises:
        RpcError: INVALID_PARAMS, with the wrong member.
    """
    body = camel(body)  # the official client writes the proto's own names
    try:
        # The field is `request` in the proto, with this name in JSON.
        found: Record = {"message": _message_up(body.get("message", body.get("request")))}
        found["configuration"] = _configuration_up(_object(body.get("configuration") or {}))
    except Malformed as error:
        raise RpcError(Code.INVALID_PARAMS, str(error)) from error
    return found | ({"metadata": body["metadata"]} if body.get("metadata") else {})


def push_request_up(task: str, body: Record) -> Record:
    """The parameters of CreateTaskPushNotificationConfig, from the request of 0.3 or its bare config.

    Raises:
        RpcError: INVALID_PARAMS, with the wrong member.
    """
    body = camel(body)
    try:
        config = _object(body.get("config", body))
        found = push_up(config.get("pushNotificationConfig", config))
        return {"id": body.get("configId") or task, **found, "taskId": task}
    except Malformed as error:
        raise RpcError(Code.INVALID_PARAMS, str(error)) from error


def answer_down(method: str, result: Any) -> Any:
    """The result in 0.3 of a method (its name in 1.0) that answers once."""
    if method in ("GetTask", "CancelTask"):
        return _task_down(result)
    if method == "SendMessage":
        return event_down(result)
    if method in ("CreateTaskPushNotificationConfig", "GetTaskPushNotificationConfig"):
        return _push_down(result)
    if method == "ListTaskPushNotificationConfigs":
        return {"configs": [_push_down(each) for each in result.get("configs", ())]}
    return with_legacy(result) if method == "GetExtendedAgentCard" else result


def event_down(event: Record) -> Record:
    """One event of a stream, as StreamResponse."""
    ((name, value),) = event.items()
    return {name: _EVENTS[name](value)}


# ── requests ─────────────────────────────────────────────────────────────────────────────────────────


def _message_up(value: Any) -> Record:
    said = _object(value)
    content = said.get("content", said.get("parts", []))
    if not isinstance(content, list):
        raise Malformed("'content' has to be a list of parts")
    kept = {name: each for name, each in said.items() if name not in ("content", "parts")}
    return {**kept, "parts": [_part_up(_object(each)) for each in content]}


def _part_up(part: Record) -> Record:
    kept = {"metadata": part["metadata"]} if part.get("metadata") else {}
    if part.get("file") is not None:
        file = _object(part["file"])
        named = {new: file[old] for old, new in _FILE.items() if file.get(old) is not None}
        return part_up({"kind": "file", "file": named, **kept})
    if part.get("data") is not None:
        return part_up({"kind": "data", "data": _object(part["data"]).get("data", {}), **kept})
    return {"text": part.get("text"), **kept}


def _configuration_up(said: Record) -> Record:
    found: Record = {}
    if said.get("acceptedOutputModes"):
        found["acceptedOutputModes"] = said["acceptedOutputModes"]
    if said.get("historyLength"):
        found["historyLength"] = said["historyLength"]  # 0 is the whole history in 0.3
    if said.get("pushNotification") is not None:
        found["taskPushNotificationConfig"] = push_up(said["pushNotification"])
    if said.get("blocking") is not True:
        found["returnImmediately"] = True  # false is not written in ProtoJSON
    return found


# ── results ──────────────────────────────────────────────────────────────────────────────────────────


def _part_down(part: Record) -> Record:
    said = part_down(part)
    kind = said.pop("kind")
    if kind == "data":
        said["data"] = {"data": said["data"]}
    elif kind == "file":
        file = said["file"]
        said["file"] = {old: file[new] for old, new in _FILE.items() if new in file}
    return said


def _message_down(said: Record) -> Record:
    kept = {name: each for name, each in said.items() if name not in ("parts", "referenceTaskIds")}
    return {**kept, "content": [_part_down(each) for each in said.get("parts", ())]}


def _status_down(said: Record) -> Record:
    found = dict(said)
    if found.get("state") == _CANCELED:
        found["state"] = _CANCELLED
    if "message" in found:
        found["message"] = _message_down(found["message"])
    return found


def _artifact_down(said: Record) -> Record:
    return {**said, "parts": [_part_down(each) for each in said.get("parts", ())]}


def _task_down(said: Record) -> Record:
    found = {**said, "status": _status_down(said.get("status", {}))}
    if "history" in said:
        found["history"] = [_message_down(each) for each in said["history"]]
    if "artifacts" in said:
        found["artifacts"] = [_artifact_down(each) for each in said["artifacts"]]
    return found


def _status_update_down(said: Record) -> Record:
    status = said.get("status", {})
    final = status.get("state") not in GOING_ON
    return {**said, "status": _status_down(status)} | ({"final": True} if final else {})


def _artifact_update_down(said: Record) -> Record:
    return {**said, "artifact": _artifact_down(said.get("artifact", {}))}


_EVENTS: dict[str, Callable[[Any], Record]] = {
    "task": _task_down,
    "message": _message_down,
    "statusUpdate": _status_update_down,
    "artifactUpdate": _artifact_update_down,
}


def _push_down(config: Record) -> Record:
    name = f"tasks/{config.get('taskId', '')}/pushNotificationConfigs/{config.get('id', '')}"
    return {"name": name, "pushNotificationConfig": push_down(config)}


def _object(value: Any) -> Record:
    if not isinstance(value, dict):
        raise Malformed("the request has no object where one has to be")
    return value
