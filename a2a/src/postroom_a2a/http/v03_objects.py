"""The objects of A2A 0.3 in JSON, from and to those of 1.0: parts, messages, tasks, their changes, push configs. Pure.

`up` is from 0.3 to 1.0, `down` the way back. What 1.0 has and 0.3 has no place for is left out: media type and file
name of a text or data part. Members are written in the order of the TypeScript SDK, so that equal objects are equal
bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from postroom_a2a.task_state import TaskState

Record = dict[str, Any]

_STATES_DOWN = {state.a2a: state.value for state in TaskState} | {
    "TASK_STATE_UNSPECIFIED": "unknown"
}
_STATES_UP = {old: new for new, old in _STATES_DOWN.items()}
_ROLES_UP = {"user": "ROLE_USER", "agent": "ROLE_AGENT"}
GOING_ON = frozenset({TaskState.SUBMITTED.a2a, TaskState.WORKING.a2a})
"""States whose update is not `final`."""

WRAPPED = "data_part_compat"
"""Metadata of a data part: its data is the member `value` of an object, for 0.3 has only objects there."""


class Malformed(ValueError):
    """A value is not what its place in A2A 0.3 or 1.0 demands; the text says which."""


# ── parts and messages ───────────────────────────────────────────────────────────────────────────────


def part_up(value: Any) -> Record:
    """A part."""
    said = record(value, "a part")
    kind = said.get("kind") or next(
        (each for each in ("text", "file", "data") if each in said), None
    )
    kept = members(said, "metadata")
    if kind == "text":
        return {"text": said.get("text"), **kept}
    if kind == "file":
        return _file_up(record(said.get("file"), "'file'")) | kept
    if kind != "data":
        raise Malformed("'kind' has to be 'text', 'file' or 'data'")
    data, metadata = record(said.get("data"), "'data'"), said.get("metadata")
    if isinstance(metadata, dict) and metadata.get(WRAPPED) and "value" in data:
        left = {name: each for name, each in metadata.items() if name != WRAPPED}
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
    return found | renamed(file, {"name": "filename", "mimeType": "mediaType"})


def part_down(value: Any) -> Record:
    """A part; one without content is an empty text."""
    said = record(value, "a part")
    kept = members(said, "metadata")
    if said.get("raw") is not None or said.get("url") is not None:
        return {"kind": "file", "file": renamed(said, _FILE), **kept}
    if "data" not in said:
        return {"kind": "text", "text": said.get("text") or "", **kept}
    if isinstance(said["data"], dict):
        return {"kind": "data", "data": said["data"], **kept}
    metadata = {**(said.get("metadata") or {}), WRAPPED: True}
    return {"kind": "data", "data": {"value": said["data"]}, "metadata": metadata}


_MESSAGE = ("messageId", "contextId", "taskId", "referenceTaskIds", "extensions", "metadata")


def message_up(value: Any) -> Record:
    """A message; one without a role is the user's."""
    said = record(value, "'message'")
    role = said.get("role") or "user"
    if not isinstance(role, str) or role not in _ROLES_UP:
        raise Malformed("'role' has to be 'user' or 'agent'")
    parts = [part_up(each) for each in listed(said, "parts")]
    return {**members(said, *_MESSAGE), "role": _ROLES_UP[role], "parts": parts}


def message_down(value: Any) -> Record:
    """A message; one without a role is the agent's."""
    said = record(value, "'message'")
    role = "user" if said.get("role") == "ROLE_USER" else "agent"
    parts = [part_down(each) for each in listed(said, "parts")]
    return {
        "kind": "message",
        "role": role,
        **needed(said, "messageId"),
        "parts": parts,
        **members(said, "contextId", "taskId", "referenceTaskIds", "extensions"),
        **({"metadata": said["metadata"]} if said.get("metadata") else {}),
    }


# ── tasks and their changes ──────────────────────────────────────────────────────────────────────────


def status_up(value: Any) -> Record:
    """A status; a state that 0.3 does not have is left out."""
    said = record(value, "'status'")
    state = said.get("state")
    known = _STATES_UP.get(state) if isinstance(state, str) else None
    found: Record = {"state": known or "TASK_STATE_UNSPECIFIED"}
    if said.get("message") is not None:
        found["message"] = message_up(said["message"])
    return found | members(said, "timestamp")


def status_down(value: Any) -> Record:
    """A status; one without a known state is `unknown`."""
    said = record(value, "'status'")
    found: Record = {"state": _STATES_DOWN.get(str(said.get("state")), "unknown")}
    if said.get("message") is not None:
        found["message"] = message_down(said["message"])
    return found | members(said, "timestamp")


_ARTIFACT = ("artifactId", "name", "description", "extensions", "metadata")


def artifact_up(value: Any) -> Record:
    """An artifact."""
    said = record(value, "an artifact")
    return {**members(said, *_ARTIFACT), "parts": [part_up(each) for each in listed(said, "parts")]}


def artifact_down(value: Any) -> Record:
    """An artifact."""
    said = record(value, "an artifact")
    return {
        **needed(said, "artifactId"),
        **members(said, "name", "description"),
        "parts": [part_down(each) for each in listed(said, "parts")],
        **members(said, "extensions", "metadata"),
    }


def task_up(value: Any) -> Record:
    """A task."""
    said = record(value, "a task")
    return {
        **members(said, "id", "contextId", "metadata"),
        "status": status_up(said.get("status") or {}),
        **each_of(said, "history", message_up),
        **each_of(said, "artifacts", artifact_up),
    }


def task_down(value: Any) -> Record:
    """A task; an empty history and no artifacts are left out."""
    said = record(value, "a task")
    return {
        "kind": "task",
        **needed(said, "id", "contextId"),
        "status": status_down(said.get("status") or {}),
        **each_of(said, "history", message_down),
        **each_of(said, "artifacts", artifact_down),
        **members(said, "metadata"),
    }


def status_update_up(value: Any) -> Record:
    """A change of status. `final` says nothing that 1.0 has."""
    said = record(value, "an update")
    kept = members(said, "taskId", "contextId", "metadata")
    return {**kept, "status": status_up(said.get("status") or {})}


def status_update_down(value: Any) -> Record:
    """A change of status; `final` unless the task goes on by itself."""
    said = record(value, "an update")
    status = record(said.get("status") or {}, "'status'")
    return {
        "kind": "status-update",
        **needed(said, "taskId", "contextId"),
        "status": status_down(status),
        "final": status.get("state") not in GOING_ON,
        **members(said, "metadata"),
    }


def artifact_update_up(value: Any) -> Record:
    """A piece of an artifact."""
    said = record(value, "an update")
    marks = {name: True for name in ("append", "lastChunk") if said.get(name) is True}
    kept = members(said, "taskId", "contextId", "metadata")
    return {**kept, "artifact": artifact_up(said.get("artifact") or {}), **marks}


def artifact_update_down(value: Any) -> Record:
    """A piece of an artifact."""
    said = record(value, "an update")
    return {
        "kind": "artifact-update",
        **needed(said, "taskId", "contextId"),
        "artifact": artifact_down(said.get("artifact") or {}),
        "append": said.get("append") is True,
        "lastChunk": said.get("lastChunk") is True,
        **members(said, "metadata"),
    }


# ── push notifications ───────────────────────────────────────────────────────────────────────────────


def push_up(value: Any) -> Record:
    """Where and how to push. Of several authentication schemes 1.0 keeps the first."""
    said = record(value, "'pushNotificationConfig'")
    found = members(said, "id", "url", "token")
    if said.get("authentication") is not None:
        authentication = record(said["authentication"], "'authentication'")
        schemes = listed(authentication, "schemes")
        found["authentication"] = {
            **({"scheme": schemes[0]} if schemes else {}),
            **members(authentication, "credentials"),
        }
    return found


def push_down(value: Any) -> Record:
    """Where and how to push, without the task that it is about."""
    said = record(value, "a push notification config")
    found = needed(said, "url") | members(said, "token", "id")
    if said.get("authentication") is not None:
        authentication = record(said["authentication"], "'authentication'")
        scheme = authentication.get("scheme")
        schemes = [scheme] if scheme else []
        found["authentication"] = {"schemes": schemes, **members(authentication, "credentials")}
    return found


def task_push_up(value: Any) -> Record:
    """Where and how to push, and the task that it is about."""
    said = record(value, "a push notification config")
    return {**push_up(said.get("pushNotificationConfig")), "taskId": said.get("taskId")}


def task_push_down(value: Any) -> Record:
    """Where and how to push, and the task that it is about."""
    said = record(value, "a push notification config")
    return {**needed(said, "taskId"), "pushNotificationConfig": push_down(said)}


# ── reading ──────────────────────────────────────────────────────────────────────────────────────────


def record(value: Any, where: str) -> Record:
    """`value`, which has to be an object; `where` names it in the fault."""
    if not isinstance(value, dict):
        raise Malformed(f"{where} has to be an object")
    return value


def listed(said: Record, name: str) -> list[Any]:
    """A list; empty if it is absent."""
    value = said.get(name)
    if value is None:
        return []
    if not isinstance(value, list):
        raise Malformed(f"{name!r} has to be a list")
    return value


def each_of(said: Record, name: str, change: Callable[[Any], Record]) -> Record:
    """A list, each translated by `change`; left out where it is empty."""
    found = [change(each) for each in listed(said, name)]
    return {name: found} if found else {}


def members(said: Record, *names: str) -> Record:
    """The members of these names that are there."""
    return {name: said[name] for name in names if said.get(name) is not None}


def needed(said: Record, *names: str, name: str = "") -> Record:
    """Texts that 0.3 has also where they are empty; `name` is another name for the only one."""
    return {name or each: said.get(each) or "" for each in names}


def renamed(said: Record, names: Mapping[str, str]) -> Record:
    """The members of these names that are there, under their new names."""
    return {new: said[old] for old, new in names.items() if said.get(old) is not None}
