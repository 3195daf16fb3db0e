"""A2A 0.3 in JSON, from and to the JSON of 1.0: parameters and results of its methods. Pure.

`up` is from 0.3 to 1.0, `down` the way back. A server translates requests up and results down, a client requests down
and results up. REST has other objects in 0.3 (`rest`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from postroom_a2a.errors import ProtocolViolation
from postroom_a2a.http.cards import card_up, with_legacy
from postroom_a2a.http.errors import LEGACY
from postroom_a2a.http.v03_objects import (
    Malformed,
    Record,
    artifact_update_down,
    artifact_update_up,
    listed,
    members,
    message_down,
    message_up,
    needed,
    push_down,
    push_up,
    record,
    renamed,
    status_update_down,
    status_update_up,
    task_down,
    task_push_down,
    task_push_up,
    task_up,
)
from postroom_a2a.rpc import Code, RpcError

_METHODS = {new: old for old, new in LEGACY.items()}


# ── requests ─────────────────────────────────────────────────────────────────────────────────────────


def request_up(method: str, params: Any) -> Record:
    """The parameters of 1.0 for `method` (its name in 1.0) from those of 0.3.

    Raises:
        RpcError: INVALID_PARAMS, with the wrong member.
    """
    try:
        return _REQUESTS_UP[method](record({} if params is None else params, "'params'"))
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
    return found | members(said, "metadata")


def _send_down(said: Record) -> Record:
    found: Record = {"message": message_down(said.get("message") or {})}
    if said.get("configuration") is not None:
        found["configuration"] = configuration_down(said["configuration"])
    return found | members(said, "metadata")


def configuration_up(value: Any) -> Record:
    """How to answer a message; a history of length 0 is the whole one in 0.3."""
    said = record(value, "configuration")
    found = members(said, "acceptedOutputModes")
    if said.get("historyLength"):
        found["historyLength"] = said["historyLength"]
    if said.get("pushNotificationConfig") is not None:
        found["taskPushNotificationConfig"] = push_up(said["pushNotificationConfig"])
    if said.get("blocking") is False:
        found["returnImmediately"] = True
    return found


def configuration_down(value: Any) -> Record:
    """How to answer a message."""
    said = record(value, "configuration")
    found = members(said, "acceptedOutputModes", "historyLength")
    if said.get("taskPushNotificationConfig") is not None:
        found["pushNotificationConfig"] = push_down(said["taskPushNotificationConfig"])
    return found | {"blocking": said.get("returnImmediately") is not True}


def _get_up(said: Record) -> Record:
    found = members(said, "id")
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
    return needed(said, "taskId", name="id") | renamed(said, {"id": "pushNotificationConfigId"})


_REQUESTS_UP: Mapping[str, Callable[[Record], Record]] = {
    "SendMessage": _send_up,
    "SendStreamingMessage": _send_up,
    "GetTask": _get_up,
    "CancelTask": lambda said: members(said, "id", "metadata"),
    "SubscribeToTask": lambda said: members(said, "id"),
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
    said = record(event, "it")
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


# ── tables ───────────────────────────────────────────────────────────────────────────────────────────


def _pushes_up(value: Any) -> Record:
    if not isinstance(value, list):
        raise Malformed("it has to be a list")
    return {"configs": [task_push_up(each) for each in value], "nextPageToken": ""}


_REQUESTS_DOWN: Mapping[str, Callable[[Record], Record]] = {
    "SendMessage": _send_down,
    "SendStreamingMessage": _send_down,
    "GetTask": lambda said: needed(said, "id") | members(said, "historyLength"),
    "CancelTask": lambda said: needed(said, "id") | members(said, "metadata"),
    "SubscribeToTask": lambda said: needed(said, "id"),
    "CreateTaskPushNotificationConfig": task_push_down,
    "GetTaskPushNotificationConfig": _push_id_down,
    "ListTaskPushNotificationConfigs": lambda said: needed(said, "taskId", name="id"),
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
        task_push_down(each) for each in listed(found, "configs")
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
