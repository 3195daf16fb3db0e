"""Reads the objects of A2A 0.3 in JSON as the protobuf types of 1.0: parts, messages, tasks and their updates.

Members are read in any order; what 0.3 does not know is ignored, and a missing `kind` is inferred where only one kind
fits.
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from typing import Any

from a2a import types
from postroom_a2a.http.v03_objects import WRAPPED
from postroom_a2a.sdk.translation.values import (
    MalformedObject,
    Record,
    count,
    flag,
    free,
    listed,
    record,
    struct,
    text,
    texts,
    within,
)
from postroom_a2a.task_state import TaskState

_State = types.TaskState

_NUMBERS: dict[str, Any] = {state.value: _State.Value(state.a2a) for state in TaskState}
_ROLES = {"user": types.Role.ROLE_USER, "agent": types.Role.ROLE_AGENT}


# ── parts ────────────────────────────────────────────────────────────────────────────────────────────


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
    wrapped = metadata.pop(WRAPPED, False)
    part = types.Part()
    if wrapped and "value" in data:
        free(data["value"], "data", part.data)
    else:
        free(data, "data", part.data.struct_value)
    struct({"metadata": metadata}, "metadata", part.metadata)
    return part


_PARTS = {"text": _read_text, "file": _read_file, "data": _read_data}


# ── messages ─────────────────────────────────────────────────────────────────────────────────────────


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


# ── configurations ────────────────────────────────────────────────────────────────────────────────


def read_push_config(said: Record) -> types.TaskPushNotificationConfig:
    """Where and how to push. Of several authentication schemes 1.0 keeps the first."""
    return types.TaskPushNotificationConfig(
        id=text(said, "id"),
        url=text(said, "url"),
        token=text(said, "token"),
        authentication=within(said, "authentication", _read_authentication),
    )


def _read_authentication(said: Record) -> types.AuthenticationInfo:
    schemes = texts(said, "schemes")
    return types.AuthenticationInfo(
        scheme=schemes[0] if schemes else "", credentials=text(said, "credentials")
    )


def read_task_push_config(value: Any) -> types.TaskPushNotificationConfig:
    """Where and how to push, and the task that it is about."""
    said = record(value)
    config = within(said, "pushNotificationConfig", read_push_config)
    if config is None:
        raise MalformedObject("pushNotificationConfig", "is required")
    config.task_id = text(said, "taskId")
    return config


def read_configuration(said: Record) -> types.SendMessageConfiguration:
    """How to answer a message; a history of length 0 is the whole one in 0.3."""
    return types.SendMessageConfiguration(
        accepted_output_modes=texts(said, "acceptedOutputModes"),
        task_push_notification_config=within(said, "pushNotificationConfig", read_push_config),
        history_length=count(said, "historyLength") or None,
        return_immediately=flag(said, "blocking") is False,
    )
