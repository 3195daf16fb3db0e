"""The objects of A2A 0.3 in JSON, from and to the protobuf types of 1.0: parts, messages, tasks and their updates.

Members are written in the order of the TypeScript SDK, so that equal objects are equal bytes. They are read in any
order; what 0.3 does not know is ignored, and a missing `kind` is inferred where only one kind fits.

What 1.0 has and 0.3 has no place for is left out: media type and file name of a text or data part.
"""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from typing import Any

from a2a import types
from postroom_a2a.sdk.translation.values import (
    MalformedObject,
    Record,
    flag,
    free,
    listed,
    plain,
    record,
    struct,
    text,
    texts,
    within,
)

_State = types.TaskState

_STATES: dict[int, str] = {
    _State.TASK_STATE_UNSPECIFIED: "unknown",
    _State.TASK_STATE_SUBMITTED: "submitted",
    _State.TASK_STATE_WORKING: "working",
    _State.TASK_STATE_COMPLETED: "completed",
    _State.TASK_STATE_FAILED: "failed",
    _State.TASK_STATE_CANCELED: "canceled",
    _State.TASK_STATE_INPUT_REQUIRED: "input-required",
    _State.TASK_STATE_REJECTED: "rejected",
    _State.TASK_STATE_AUTH_REQUIRED: "auth-required",
}
_NUMBERS: dict[str, Any] = {name: number for number, name in _STATES.items()}
_ROLES = {"user": types.Role.ROLE_USER, "agent": types.Role.ROLE_AGENT}
_GOING_ON = frozenset({_State.TASK_STATE_SUBMITTED, _State.TASK_STATE_WORKING})

_WRAPPED = "data_part_compat"
"""Metadata of a data part: its data is the member `value` of an object, for 0.3 has only objects there."""


# ── parts ────────────────────────────────────────────────────────────────────────────────────────────


def write_part(part: types.Part) -> Record:
    """A part; one without content is an empty text."""
    kind = part.WhichOneof("content")
    metadata = plain(part.metadata) if part.HasField("metadata") else None
    written: Record
    if kind == "data":
        data = plain(part.data)
        if not isinstance(data, dict):
            data = {"value": data}
            metadata = {**(metadata or {}), _WRAPPED: True}
        written = {"kind": "data", "data": data}
    elif kind in {"raw", "url"}:
        file: Record = {}
        if part.filename:
            file["name"] = part.filename
        if part.media_type:
            file["mimeType"] = part.media_type
        if kind == "raw":
            file["bytes"] = b64encode(part.raw).decode()
        else:
            file["uri"] = part.url
        written = {"kind": "file", "file": file}
    else:
        written = {"kind": "text", "text": part.text}
    if metadata is not None:
        written["metadata"] = metadata
    return written


def read_part(value: Any) -> types.Part:
    """A part."""
    said = record(value)
    kind = said.get("kind") or next((each for each in _PARTS if each in said), None)
    read = _PARTS.get(kind) if isinstance(kind, str) else None
    if read is None:
        raise MalformedObject("kind", "has to be 'text', 'file' or 'data'")
    return read(said)


def _read_text(said: Record) -> types.Part:
    if said.get("text") is None:
        raise MalformedObject("text", "is required")
    part = types.Part(text=text(said, "text"))
    struct(said, "metadata", part.metadata, keep_empty=True)
    return part


def _read_file(said: Record) -> types.Part:
    part = within(said, "file", _read_content)
    if part is None:
        raise MalformedObject("file", "is required")
    struct(said, "metadata", part.metadata, keep_empty=True)
    return part


def _read_content(file: Record) -> types.Part:
    part = types.Part(filename=text(file, "name"), media_type=text(file, "mimeType"))
    if file.get("bytes") is not None:
        part.raw = _decoded(text(file, "bytes"))
    elif file.get("uri") is not None:
        part.url = text(file, "uri")
    else:
        raise MalformedObject("bytes", "or 'uri' is required")
    return part


def _decoded(encoded: str) -> bytes:
    try:
        return b64decode(encoded, validate=True)
    except ValueError:
        pass  # lines, the alphabet of URLs, or no padding: peers write these too
    plain = "".join(encoded.split()).rstrip("=").replace("-", "+").replace("_", "/")
    try:
        return b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except (ValueError, binascii.Error) as error:
        raise MalformedObject("bytes", "has to be base64") from error


def _read_data(said: Record) -> types.Part:
    data = record(said.get("data"), "data")
    metadata = dict(record(said.get("metadata") or {}, "metadata"))
    wrapped = metadata.pop(_WRAPPED, False)
    part = types.Part()
    if wrapped and "value" in data:
        free(data["value"], "data", part.data)
    else:
        free(data, "data", part.data.struct_value)
    struct({"metadata": metadata}, "metadata", part.metadata)
    return part


_PARTS = {"text": _read_text, "file": _read_file, "data": _read_data}


# ── messages ─────────────────────────────────────────────────────────────────────────────────────────


def write_message(message: types.Message) -> Record:
    """A message; one without a role is the agent's."""
    written: Record = {
        "kind": "message",
        "role": "user" if message.role == types.Role.ROLE_USER else "agent",
        "messageId": message.message_id,
        "parts": [write_part(part) for part in message.parts],
    }
    if message.context_id:
        written["contextId"] = message.context_id
    if message.task_id:
        written["taskId"] = message.task_id
    if message.reference_task_ids:
        written["referenceTaskIds"] = list(message.reference_task_ids)
    if message.extensions:
        written["extensions"] = list(message.extensions)
    if message.HasField("metadata") and message.metadata.fields:
        written["metadata"] = plain(message.metadata)
    return written


def read_message(value: Any) -> types.Message:
    """A message."""
    said = record(value)
    role = text(said, "role")
    if role and role not in _ROLES:
        raise MalformedObject("role", "has to be 'user' or 'agent'")
    message = types.Message(
        message_id=text(said, "messageId"),
        context_id=text(said, "contextId"),
        task_id=text(said, "taskId"),
        role=_ROLES.get(role) if role else None,
        parts=listed(said, "parts", read_part),
        extensions=texts(said, "extensions"),
        reference_task_ids=texts(said, "referenceTaskIds"),
    )
    struct(said, "metadata", message.metadata)
    return message


# ── tasks ────────────────────────────────────────────────────────────────────────────────────────────


def write_status(status: types.TaskStatus) -> Record:
    """A status; one without a state is `unknown`."""
    written: Record = {"state": _STATES.get(status.state, "unknown")}
    if status.HasField("message"):
        written["message"] = write_message(status.message)
    if status.HasField("timestamp"):
        written["timestamp"] = status.timestamp.ToJsonString()
    return written


def read_status(said: Record) -> types.TaskStatus:
    """A status; a state that 0.3 does not have is left out."""
    status = types.TaskStatus(
        state=_NUMBERS.get(text(said, "state"), _State.TASK_STATE_UNSPECIFIED),
        message=within(said, "message", read_message),
    )
    at = text(said, "timestamp")
    if at:
        try:
            status.timestamp.FromJsonString(at.replace("+00:00", "Z"))
        except ValueError as error:
            raise MalformedObject("timestamp", "has to be an instant (RFC 3339)") from error
    return status


def write_artifact(artifact: types.Artifact) -> Record:
    """An artifact."""
    written: Record = {"artifactId": artifact.artifact_id}
    if artifact.name:
        written["name"] = artifact.name
    if artifact.description:
        written["description"] = artifact.description
    written["parts"] = [write_part(part) for part in artifact.parts]
    if artifact.extensions:
        written["extensions"] = list(artifact.extensions)
    if artifact.HasField("metadata"):
        written["metadata"] = plain(artifact.metadata)
    return written


def read_artifact(value: Any) -> types.Artifact:
    """An artifact."""
    said = record(value)
    artifact = types.Artifact(
        artifact_id=text(said, "artifactId"),
        name=text(said, "name"),
        description=text(said, "description"),
        parts=listed(said, "parts", read_part),
        extensions=texts(said, "extensions"),
    )
    struct(said, "metadata", artifact.metadata)
    return artifact


def write_task(task: types.Task) -> Record:
    """A task; an empty history and no artifacts are left out."""
    written: Record = {
        "kind": "task",
        "id": task.id,
        "contextId": task.context_id,
        "status": write_status(task.status),
    }
    if task.history:
        written["history"] = [write_message(message) for message in task.history]
    if task.artifacts:
        written["artifacts"] = [write_artifact(artifact) for artifact in task.artifacts]
    if task.HasField("metadata"):
        written["metadata"] = plain(task.metadata)
    return written


def read_task(value: Any) -> types.Task:
    """A task."""
    said = record(value)
    task = types.Task(
        id=text(said, "id"),
        context_id=text(said, "contextId"),
        status=within(said, "status", read_status),
        artifacts=listed(said, "artifacts", read_artifact),
        history=listed(said, "history", read_message),
    )
    struct(said, "metadata", task.metadata)
    return task


# ── updates ──────────────────────────────────────────────────────────────────────────────────────────


def write_status_update(update: types.TaskStatusUpdateEvent) -> Record:
    """A change of status; `final` unless the task goes on by itself."""
    written: Record = {
        "kind": "status-update",
        "taskId": update.task_id,
        "contextId": update.context_id,
        "status": write_status(update.status),
        "final": update.status.state not in _GOING_ON,
    }
    if update.HasField("metadata"):
        written["metadata"] = plain(update.metadata)
    return written


def read_status_update(value: Any) -> types.TaskStatusUpdateEvent:
    """A change of status. `final` says nothing that 1.0 has."""
    said = record(value)
    flag(said, "final")
    update = types.TaskStatusUpdateEvent(
        task_id=text(said, "taskId"),
        context_id=text(said, "contextId"),
        status=within(said, "status", read_status),
    )
    struct(said, "metadata", update.metadata)
    return update


def write_artifact_update(update: types.TaskArtifactUpdateEvent) -> Record:
    """A piece of an artifact."""
    written: Record = {
        "kind": "artifact-update",
        "taskId": update.task_id,
        "contextId": update.context_id,
        "artifact": write_artifact(update.artifact),
        "append": update.append,
        "lastChunk": update.last_chunk,
    }
    if update.HasField("metadata"):
        written["metadata"] = plain(update.metadata)
    return written


def read_artifact_update(value: Any) -> types.TaskArtifactUpdateEvent:
    """A piece of an artifact."""
    said = record(value)
    update = types.TaskArtifactUpdateEvent(
        task_id=text(said, "taskId"),
        context_id=text(said, "contextId"),
        artifact=within(said, "artifact", read_artifact),
        append=flag(said, "append"),
        last_chunk=flag(said, "lastChunk"),
    )
    struct(said, "metadata", update.metadata)
    return update
