"""A2A 0.3 in JSON, from and to the JSON of 1.0. Pure.

`up` is from 0.3 to 1.0, `down` the way back. A server translates requests up and results down, a client requests down
and results up. What 1.0 has and 0.3 has no place for is left out: media type and file name of a text or data part.
Members are written in the order of the TypeScript SDK, so that equal objects are equal bytes.
REST has other objects in 0.3 (`v03_rest`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from postroom_a2a.errors import ProtocolViolation
from postroom_a2a.http.v03_cards import card_up, with_legacy
from postroom_a2a.http.versions import LEGACY
from postroom_a2a.rpc import Code, RpcError
from postroom_a2a.task_state import TaskState

Record = dict[str, Any]

_METHODS = {new: old for old, new in LEGACY.items()}
_STATES_DOWN = {state.a2a: state.value for state in TaskState} | {
    "TASK_STATE_UNSPECIFIED": "unknown"
}
_STATES_UP = {old: new for new, old in _STATES_DOWN.items()}
_ROLES_UP = {"user": "ROLE_USER", "agent": "ROLE_AGENT"}
_GOING_ON = frozenset({TaskState.SUBMITTED.a2a, TaskState.WORKING.a2a})

_WRAPPED = "data_part_compat"
"""Metadata of a data part: its data is the member `value` of an object, for 0.3 has only objects there."""


class Malformed(ValueError):
    """A value is not what its place in A2A 0.3 or 1.0 demands; the text says which."""


# ── requests ─────────────────────────────────────────────────────────────────────────────────────────


def request_up(method: str, params: Any) -> Record:
    """The parameters of 1.0 for `method` (its name in 1.0) from those of 0.3.

    Raises:
        RpcError: INVALID_PARAMS, with the wrong member.
    """
    try:
        return _REQUESTS_UP[method](_record({} if params is None else params, "'params'"))
    except Malformed as error:
        raise RpcError(Code.INVALID_PARAMS, str(error)) from error


def request_down(method: str, params: Record) -> tuple[str, Record]:
    """Method and parameters of 0.3 for a request of 1.0; a tenant is left out.

    Raises:
        RpcError: UNSUPPORTED_OPERATION, if 0.3 lacks it; INVALID_PARAMS for what is no request.
    """
    if method not in _METHODS:
        raise RpcError(Code.UNSUPPORTED_OPERATION, f"A2A 0.3 has no {method[:80]}")
    try:
        return _METHODS[method], _REQUESTS_DOWN[method](params)
    except Malformed as error:
        raise RpcError(Code.INVALID_PARAMS, str(error)) from error


def _send_up(said: Record) -> Record:
    found: Record = {"message": message_up(said.get("message"))}
    if said.get("configuration") is not None:
        found["configuration"] = configuration_up(said["configuration"])
    return found | _kept(said, "metadata")


def _send_down(said: Record) -> Record:
    found: Record = {"message": message_down(said.get("message") or {})}
    if said.get("configuration") is not None:
        found["configuration"] = configuration_down(said["configuration"])
    return found | _kept(said, "metadata")


def configuration_up(value: Any) -> Record:
    """How to answer a message; a history of length 0 is the whole one in 0.3."""
    said = _record(value, "configuration")
    found = _kept(said, "acceptedOutputModes")
    if said.get("historyLength"):
        found["historyLength"] = said["historyLength"]
    if said.get("pushNotificationConfig") is not None:
        found["taskPushNotificationConfig"] = push_up(said["pushNotificationConfig"])
    if said.get("blocking") is False:
        found["returnImmediately"] = True
    return found


def configuration_down(value: Any) -> Record:
    """How to answer a message."""
    said = _record(value, "configuration")
    found = _kept(said, "acceptedOutputModes", "historyLength")
    if said.get("taskPushNotificationConfig") is not None:
        found["pushNotificationConfig"] = push_down(said["taskPushNotificationConfig"])
    return found | {"blocking": said.get("returnImmediately") is not True}


def _get_up(said: Record) -> Record:
    found = _kept(said, "id")
    if said.get("historyLength"):
        found["historyLength"] = said["historyLength"]
    return found


def _push_request_up(said: Record) -> Record:
    task = said.get("taskId")
    # Without an id the task has one config of this name, as the official SDK has it.
    return {"id": task, **push_up(said.get("pushNotificationConfig")), "taskId": task}


def _push_id_up(said: Record) -> Record:
    return {"taskId": said.get("id"), "id": said.get("pushNotificationConfigId") or said.get("id")}


def _push_id_down(said: Record) -> Record:
    return _needed(said, "taskId", name="id") | _renamed(said, {"id": "pushNotificationConfigId"})


_REQUESTS_UP: Mapping[str, Callable[[Record], Record]] = {
    "SendMessage": _send_up,
    "SendStreamingMessage": _send_up,
    "GetTask": _get_up,
    "CancelTask": lambda said: _kept(said, "id", "metadata"),
    "SubscribeToTask": lambda said: _kept(said, "id"),
    "CreateTaskPushNotificationConfig": _push_request_up,
    "GetTaskPushNotificationConfig": _push_id_up,
    "ListTaskPushNotificationConfigs": lambda said: {"taskId": said.get("id")},
    "DeleteTaskPushNotificationConfig": _push_id_up,
    "GetExtendedAgentCard": lambda _: {},
}


# ── results ──────────────────────────────────────────────────────────────────────────────────────────


def answer_down(method: str, result: Any) -> Any:
    """The result in 0.3 of a method (its name in 1.0) that answers once."""
    return _ANSWERS_DOWN.get(method, _same)(result)


def answer_up(method: str, result: Any) -> Any:
    """The result in 1.0 of a method that a server of 0.3 has answered.

    Raises:
        ProtocolViolation: it is not such a result.
    """
    try:
        return _ANSWERS_UP.get(method, _same)(result)
    except Malformed as error:
        raise ProtocolViolation(f"the result of {_METHODS.get(method, method)}: {error}") from error


def event_down(event: Record) -> Record:
    """One event of a stream: a bare object with its `kind`."""
    for name, write in _EVENTS_DOWN.items():
        if name in event:
            return write(event[name])
    raise Malformed("an event is of no known kind")


def event_up(event: Any) -> Record:
    """One event of a stream of 0.3, as StreamResponse.

    Raises:
        ProtocolViolation: it is not one.
    """
    try:
        return _event_up(event)
    except Malformed as error:
        raise ProtocolViolation(f"an event: {error}") from error


def _event_up(event: Any) -> Record:
    said = _record(event, "it")
    kind = _kind(said)
    if not isinstance(kind, str) or kind not in _EVENTS_UP:
        raise Malformed("'kind' names no kind of event")
    name, read = _EVENTS_UP[kind]
    return {name: read(said)}


def _kind(said: Record) -> Any:
    """The kind of an event, also of one that does not say it."""
    if "kind" in said:
        return said["kind"]
    if "messageId" in said:
        return "message"
    if "artifact" in said:
        return "artifact-update"
    return "status-update" if "taskId" in said else "task"


def _sent_up(result: Any) -> Record:
    found = _event_up(result)
    if not found.keys() & {"task", "message"}:
        raise Malformed("'kind' has to be 'task' or 'message'")
    return found


def _same(value: Any) -> Any:
    return value


# ── parts and messages ───────────────────────────────────────────────────────────────────────────────


def part_up(value: Any) -> Record:
    """A part."""
    said = _record(value, "a part")
    kind = said.get("kind") or next(
        (each for each in ("text", "file", "data") if each in said), None
    )
    kept = _kept(said, "metadata")
    if kind == "text":
        return {"text": said.get("text"), **kept}
    if kind == "file":
        return _file_up(_record(said.get("file"), "'file'")) | kept
    if kind != "data":
        raise Malformed("'kind' has to be 'text', 'file' or 'data'")
    data, metadata = _record(said.get("data"), "'data'"), said.get("metadata")
    if isinstance(metadata, dict) and metadata.get(_WRAPPED) and "value" in data:
        left = {name: each for name, each in metadata.items() if name != _WRAPPED}
        return {"data": data["value"]} | ({"metadata": left} if left else {})
    return {"data": data, **kept}


_FILE = {"filename": "name", "mediaType": "mimeType", "raw": "bytes", "url": "uri"}


def _file_up(file: Record) -> Record:
    found: Record = {}
    if file.get("bytes") is not None:
        found["raw"] = file["bytes"]
    elif file.get("uri") is not None:
        found["url"] = file["uri"]
    else:
        raise Malformed("'file' needs 'bytes' or 'uri'")
    return found | _renamed(file, {"name": "filename", "mimeType": "mediaType"})


def part_down(value: Any) -> Record:
    """A part; one without content is an empty text."""
    said = _record(value, "a part")
    kept = _kept(said, "metadata")
    if said.get("raw") is not None or said.get("url") is not None:
        return {"kind": "file", "file": _renamed(said, _FILE), **kept}
    if "data" not in said:
        return {"kind": "text", "text": said.get("text") or "", **kept}
    if isinstance(said["data"], dict):
        return {"kind": "data", "data": said["data"], **kept}
    metadata = {**(said.get("metadata") or {}), _WRAPPED: True}
    return {"kind": "data", "data": {"value": said["data"]}, "metadata": metadata}


_MESSAGE = ("messageId", "contextId", "taskId", "referenceTaskIds", "extensions", "metadata")


def message_up(value: Any) -> Record:
    """A message; one without a role is the user's."""
    said = _record(value, "'message'")
    role = said.get("role") or "user"
    if not isinstance(role, str) or role not in _ROLES_UP:
        raise Malformed("'role' has to be 'user' or 'agent'")
    parts = [part_up(each) for each in _list(said, "parts")]
    return {**_kept(said, *_MESSAGE), "role": _ROLES_UP[role], "parts": parts}


def message_down(value: Any) -> Record:
    """A message; one without a role is the agent's."""
    said = _record(value, "'message'")
    role = "user" if said.get("role") == "ROLE_USER" else "agent"
    parts = [part_down(each) for each in _list(said, "parts")]
    return {
        "kind": "message",
        "role": role,
        **_needed(said, "messageId"),
        "parts": parts,
        **_kept(said, "contextId", "taskId", "referenceTaskIds", "extensions"),
        **({"metadata": said["metadata"]} if said.get("metadata") else {}),
    }


# ── tasks and their changes ──────────────────────────────────────────────────────────────────────────


def status_up(value: Any) -> Record:
    """A status; a state that 0.3 does not have is left out."""
    said = _record(value, "'status'")
    state = said.get("state")
    known = _STATES_UP.get(state) if isinstance(state, str) else None
    found: Record = {"state": known or "TASK_STATE_UNSPECIFIED"}
    if said.get("message") is not None:
        found["message"] = message_up(said["message"])
    return found | _kept(said, "timestamp")


def status_down(value: Any) -> Record:
    """A status; one without a known state is `unknown`."""
    said = _record(value, "'status'")
    found: Record = {"state": _STATES_DOWN.get(str(said.get("state")), "unknown")}
    if said.get("message") is not None:
        found["message"] = message_down(said["message"])
    return found | _kept(said, "timestamp")


_ARTIFACT = ("artifactId", "name", "description", "extensions", "metadata")


def artifact_up(value: Any) -> Record:
    """An artifact."""
    said = _record(value, "an artifact")
    return {**_kept(said, *_ARTIFACT), "parts": [part_up(each) for each in _list(said, "parts")]}


def artifact_down(value: Any) -> Record:
    """An artifact."""
    said = _record(value, "an artifact")
    return {
        **_needed(said, "artifactId"),
        **_kept(said, "name", "description"),
        "parts": [part_down(each) for each in _list(said, "parts")],
        **_kept(said, "extensions", "metadata"),
    }


def task_up(value: Any) -> Record:
    """A task."""
    said = _record(value, "a task")
    return {
        **_kept(said, "id", "contextId", "metadata"),
        "status": status_up(said.get("status") or {}),
        **_each(said, "history", message_up),
        **_each(said, "artifacts", artifact_up),
    }


def task_down(value: Any) -> Record:
    """A task; an empty history and no artifacts are left out."""
    said = _record(value, "a task")
    return {
        "kind": "task",
        **_needed(said, "id", "contextId"),
        "status": status_down(said.get("status") or {}),
        **_each(said, "history", message_down),
        **_each(said, "artifacts", artifact_down),
        **_kept(said, "metadata"),
    }


def status_update_up(value: Any) -> Record:
    """A change of status. `final` says nothing that 1.0 has."""
    said = _record(value, "an update")
    kept = _kept(said, "taskId", "contextId", "metadata")
    return {**kept, "status": status_up(said.get("status") or {})}


def status_update_down(value: Any) -> Record:
    """A change of status; `final` unless the task goes on by itself."""
    said = _record(value, "an update")
    status = _record(said.get("status") or {}, "'status'")
    return {
        "kind": "status-update",
        **_needed(said, "taskId", "contextId"),
        "status": status_down(status),
        "final": status.get("state") not in _GOING_ON,
        **_kept(said, "metadata"),
    }


def artifact_update_up(value: Any) -> Record:
    """A piece of an artifact."""
    said = _record(value, "an update")
    marks = {name: True for name in ("append", "lastChunk") if said.get(name) is True}
    kept = _kept(said, "taskId", "contextId", "metadata")
    return {**kept, "artifact": artifact_up(said.get("artifact") or {}), **marks}


def artifact_update_down(value: Any) -> Record:
    """A piece of an artifact."""
    said = _record(value, "an update")
    return {
        "kind": "artifact-update",
        **_needed(said, "taskId", "contextId"),
        "artifact": artifact_down(said.get("artifact") or {}),
        "append": said.get("append") is True,
        "lastChunk": said.get("lastChunk") is True,
        **_kept(said, "metadata"),
    }


# ── push notifications ───────────────────────────────────────────────────────────────────────────────


def push_up(value: Any) -> Record:
    """Where and how to push. Of several authentication schemes 1.0 keeps the first."""
    said = _record(value, "'pushNotificationConfig'")
    found = _kept(said, "id", "url", "token")
    if said.get("authentication") is not None:
        authentication = _record(said["authentication"], "'authentication'")
        schemes = _list(authentication, "schemes")
        found["authentication"] = {
            **({"scheme": schemes[0]} if schemes else {}),
            **_kept(authentication, "credentials"),
        }
    return found


def push_down(value: Any) -> Record:
    """Where and how to push, without the task that it is about."""
    said = _record(value, "a push notification config")
    found = _needed(said, "url") | _kept(said, "token", "id")
    if said.get("authentication") is not None:
        authentication = _record(said["authentication"], "'authentication'")
        scheme = authentication.get("scheme")
        schemes = [scheme] if scheme else []
        found["authentication"] = {"schemes": schemes, **_kept(authentication, "credentials")}
    return found


def task_push_up(value: Any) -> Record:
    """Where and how to push, and the task that it is about."""
    said = _record(value, "a push notification config")
    return {**push_up(said.get("pushNotificationConfig")), "taskId": said.get("taskId")}


def task_push_down(value: Any) -> Record:
    """Where and how to push, and the task that it is about."""
    said = _record(value, "a push notification config")
    return {**_needed(said, "taskId"), "pushNotificationConfig": push_down(said)}


def _pushes_up(value: Any) -> Record:
    if not isinstance(value, list):
        raise Malformed("it has to be a list")
    return {"configs": [task_push_up(each) for each in value], "nextPageToken": ""}


_REQUESTS_DOWN: Mapping[str, Callable[[Record], Record]] = {
    "SendMessage": _send_down,
    "SendStreamingMessage": _send_down,
    "GetTask": lambda said: _needed(said, "id") | _kept(said, "historyLength"),
    "CancelTask": lambda said: _needed(said, "id") | _kept(said, "metadata"),
    "SubscribeToTask": lambda said: _needed(said, "id"),
    "CreateTaskPushNotificationConfig": task_push_down,
    "GetTaskPushNotificationConfig": _push_id_down,
    "ListTaskPushNotificationConfigs": lambda said: _needed(said, "taskId", name="id"),
    "DeleteTaskPushNotificationConfig": _push_id_down,
    "GetExtendedAgentCard": lambda _: {},
}
_EVENTS_DOWN: Mapping[str, Callable[[Any], Record]] = {
    "task": task_down,
    "message": message_down,
    "statusUpdate": status_update_down,
    "artifactUpdate": artifact_update_down,
}
_EVENTS_UP: Mapping[Any, tuple[str, Callable[[Any], Record]]] = {
    "task": ("task", task_up),
    "message": ("message", message_up),
    "status-update": ("statusUpdate", status_update_up),
    "artifact-update": ("artifactUpdate", artifact_update_up),
}
_ANSWERS_DOWN: Mapping[str, Callable[[Any], Any]] = {
    "SendMessage": event_down,
    "GetTask": task_down,
    "CancelTask": task_down,
    "CreateTaskPushNotificationConfig": task_push_down,
    "GetTaskPushNotificationConfig": task_push_down,
    "ListTaskPushNotificationConfigs": lambda found: [
        task_push_down(each) for each in _list(found, "configs")
    ],
    "DeleteTaskPushNotificationConfig": lambda _: None,
    "GetExtendedAgentCard": with_legacy,
}
_ANSWERS_UP: Mapping[str, Callable[[Any], Any]] = {
    "SendMessage": _sent_up,
    "GetTask": task_up,
    "CancelTask": task_up,
    "CreateTaskPushNotificationConfig": task_push_up,
    "GetTaskPushNotificationConfig": task_push_up,
    "ListTaskPushNotificationConfigs": _pushes_up,
    "DeleteTaskPushNotificationConfig": lambda _: {},
    "GetExtendedAgentCard": card_up,
}


# ── reading ──────────────────────────────────────────────────────────────────────────────────────────


def _record(value: Any, where: str) -> Record:
    if not isinstance(value, dict):
        raise Malformed(f"{where} has to be an object")
    return value


def _list(said: Record, name: str) -> list[Any]:
    value = said.get(name)
    if value is None:
        return []
    if not isinstance(value, list):
        raise Malformed(f"{name!r} has to be a list")
    return value


def _each(said: Record, name: str, change: Callable[[Any], Record]) -> Record:
    found = [change(each) for each in _list(said, name)]
    return {name: found} if found else {}


def _kept(said: Record, *names: str) -> Record:
    return {name: said[name] for name in names if said.get(name) is not None}


def _needed(said: Record, *names: str, name: str = "") -> Record:
    """Texts that 0.3 has also where they are empty; `name` is another name for the only one."""
    return {name or each: said.get(each) or "" for each in names}


def _renamed(said: Record, names: Mapping[str, str]) -> Record:
    return {new: said[old] for old, new in names.items() if said.get(old) is not None}
