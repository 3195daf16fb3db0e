"""A2A 0.3 as a client meets it: calls of 1.0 become calls of 0.3, its results and events those of 1.0. Pure JSON.

What comes from a server is hostile: a member of another type than it should have is left out, and what cannot be read
at all is a `ProtocolViolation`.
"""

from __future__ import annotations

from typing import Any

from postroom_a2a.errors import ProtocolViolation
from postroom_a2a.messages import part_fault
from postroom_a2a.rpc import Code, RpcError
from postroom_a2a.task_state import TaskState

Record = dict[str, Any]

_PUSH = "tasks/pushNotificationConfig"

METHODS = {
    "SendMessage": "message/send",
    "SendStreamingMessage": "message/stream",
    "GetTask": "tasks/get",
    "CancelTask": "tasks/cancel",
    "SubscribeToTask": "tasks/resubscribe",
    "CreateTaskPushNotificationConfig": f"{_PUSH}/set",
    "GetTaskPushNotificationConfig": f"{_PUSH}/get",
    "ListTaskPushNotificationConfigs": f"{_PUSH}/list",
    "DeleteTaskPushNotificationConfig": f"{_PUSH}/delete",
    "GetExtendedAgentCard": "agent/getAuthenticatedExtendedCard",
}
"""Each method of 1.0 that 0.3 has: its name there."""

_WRAPPED = "data_part_compat"
"""Metadata of a data part: its data is the member `value` of an object, for 0.3 has only objects there."""


# ── calls ────────────────────────────────────────────────────────────────────────────────────────────


def request_down(method: str, params: Record) -> tuple[str, Record]:
    """Method and parameters as 0.3 has them.

    Raises:
        RpcError: 0.3 has no such method.
    """
    name = METHODS.get(method)
    if name is None:
        raise RpcError(Code.METHOD_NOT_FOUND, f"A2A 0.3 has no {method}")
    if "message" in params:
        return name, _sending(params)
    if not name.startswith(_PUSH):
        return name, params
    if method == "CreateTaskPushNotificationConfig":
        given = {key: value for key, value in params.items() if key != "taskId"}
        return name, {"taskId": params["taskId"], "pushNotificationConfig": _config_down(given)}
    config = {"pushNotificationConfigId": params["id"]} if "id" in params else {}
    return name, {"id": params["taskId"], **config}


def _sending(params: Record) -> Record:
    sent = {**params, "message": message_down(params["message"])}
    if asked := dict(params.get("configuration") or {}):
        sent["configuration"] = asked
        if "returnImmediately" in asked:
            asked["blocking"] = not asked.pop("returnImmediately")
        if push := asked.pop("taskPushNotificationConfig", None):
            asked["pushNotificationConfig"] = _config_down(push)
    return sent


def message_down(message: Record) -> Record:
    """A message as 0.3 has it."""
    role = "agent" if message.get("role") == "ROLE_AGENT" else "user"
    parts = [_part_down(part) for part in message["parts"]]
    return {"kind": "message", **message, "role": role, "parts": parts}


def _part_down(part: Record) -> Record:
    metadata = dict(part.get("metadata") or {})
    made: Record
    if part.get("text") is not None:
        made = {"kind": "text", "text": part["text"]}
    elif part.get("url") is not None or part.get("raw") is not None:
        about = {"name": part.get("filename"), "mimeType": part.get("mediaType")}
        about |= {"uri": part.get("url"), "bytes": part.get("raw")}
        file = {name: value for name, value in about.items() if value is not None}
        made = {"kind": "file", "file": file}
    else:
        data = part.get("data")
        if not isinstance(data, dict):
            data, metadata = {"value": data}, {**metadata, _WRAPPED: True}
        made = {"kind": "data", "data": data}
    return made | ({"metadata": metadata} if metadata else {})


def _config_down(config: Record) -> Record:
    said = dict(config)
    if isinstance(known := said.get("authentication"), dict):
        scheme = known.get("scheme")
        rest = {name: value for name, value in known.items() if name != "scheme"}
        said["authentication"] = {"schemes": [scheme] if scheme else [], **rest}
    return said


# ── results ──────────────────────────────────────────────────────────────────────────────────────────


def answer_up(method: str, result: Any) -> Any:
    """A result as 1.0 has it.

    Raises:
        ProtocolViolation: it is none.
    """
    if method in ("SendMessage", "SendStreamingMessage"):
        return event_up(result)
    if method in ("GetTask", "CancelTask"):
        return task_up(_record(result, "a task"))
    if method == "ListTaskPushNotificationConfigs":
        found = result if isinstance(result, list) else []
        return {"configs": [_config_up(each) for each in found if isinstance(each, dict)]}
    if method.endswith("TaskPushNotificationConfig") and isinstance(result, dict):
        return _config_up(result)
    return result


def event_up(event: Any) -> Record:
    """An event, or the answer to a message, as a StreamResponse of 1.0.

    Raises:
        ProtocolViolation: it is none.
    """
    said = _record(event, "an event")
    kind = said.get("kind")
    if kind == "message" or (kind is None and "parts" in said):
        return {"message": message_up(said)}
    if kind == "status-update" or (kind is None and "status" in said and "taskId" in said):
        update = _without(said, "final") | {"status": _status_up(said.get("status"))}
        return {"statusUpdate": update}
    if kind == "artifact-update" or (kind is None and "artifact" in said):
        return {"artifactUpdate": _without(said) | {"artifact": _artifact_up(said.get("artifact"))}}
    if kind == "task" or kind is None:
        return {"task": task_up(said)}
    raise ProtocolViolation("the agent sends an event of a kind that A2A 0.3 does not have")


def task_up(task: Record) -> Record:
    """A task as 1.0 has it."""
    made = _without(task) | {"status": _status_up(task.get("status"))}
    for name, up in (("history", message_up), ("artifacts", _artifact_up)):
        if name in task:
            found = task[name] if isinstance(task[name], list) else []
            made[name] = [up(each) for each in found if isinstance(each, dict)]
    return made


def message_up(message: Record) -> Record:
    """A message as 1.0 has it."""
    role = "ROLE_USER" if message.get("role") == "user" else "ROLE_AGENT"
    return _without(message) | {"role": role, "parts": _parts_up(message.get("parts"))}


def _status_up(status: Any) -> Record:
    said = _record(status, "a status")
    try:
        state = TaskState(said.get("state"))
    except ValueError as error:
        raise ProtocolViolation("the agent says a state that A2A 0.3 does not have") from error
    made = {**said, "state": state.a2a}
    if isinstance(message := said.get("message"), dict):
        made["message"] = message_up(message)
    else:
        made.pop("message", None)
    return made


def _artifact_up(artifact: Any) -> Record:
    said = _record(artifact, "an artifact")
    return {**said, "parts": _parts_up(said.get("parts"))}


def _parts_up(parts: Any) -> list[Record]:
    found = parts if isinstance(parts, list) else []
    made = [_part_up(each) for each in found if isinstance(each, dict)]
    return [part for part in made if not part_fault(part)]


def _part_up(part: Record) -> Record:
    metadata = part.get("metadata")
    metadata = dict(metadata) if isinstance(metadata, dict) else {}
    made: Record = {}
    if isinstance(file := part.get("file"), dict):
        names = {"uri": "url", "bytes": "raw", "name": "filename", "mimeType": "mediaType"}
        made = {new: file[old] for old, new in names.items() if isinstance(file.get(old), str)}
    elif "data" in part:
        data = part["data"]
        if metadata.pop(_WRAPPED, False) and isinstance(data, dict):
            data = data.get("value")
        made = {"data": data}
    elif isinstance(part.get("text"), str):
        made = {"text": part["text"]}
    return made | ({"metadata": metadata} if metadata else {})


def _config_up(config: Record) -> Record:
    inner = config.get("pushNotificationConfig")
    said: Record = dict(inner) if isinstance(inner, dict) else {}
    if isinstance(known := said.get("authentication"), dict):
        schemes = known.get("schemes")
        scheme = schemes[0] if isinstance(schemes, list) and schemes else ""
        said["authentication"] = {**_without(known, "schemes"), "scheme": scheme}
    return {"taskId": config.get("taskId", ""), **said}


def _record(value: Any, what: str) -> Record:
    if not isinstance(value, dict):
        raise ProtocolViolation(f"the agent sends {what} that is not an object")
    return value


def _without(record: Record, *names: str) -> Record:
    return {key: value for key, value in record.items() if key not in ("kind", *names)}
