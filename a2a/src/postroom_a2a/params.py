"""Parameters of A2A 1.0 calls: checked, read, and applied to an answer. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from postroom_a2a.bounds import MAX_ID, MAX_PAGE
from postroom_a2a.errors import ProtocolViolation
from postroom_a2a.messages import part_fault
from postroom_a2a.rpc import Code, RpcError
from postroom_a2a.service import PAGE, TaskQuery
from postroom_a2a.task_state import TaskState
from postroom_a2a.tasks import Message
from postroom_a2a.times import parse_time

_JSON_NAME = re.compile(r"(?<=[a-z0-9])_([a-z0-9])")
_FREE = frozenset({"metadata", "data"})


def camel(value: Any) -> Any:
    """Parameters under the JSON names of their fields; a reader of ProtoJSON takes the proto's own names, too.

    Free-form values (`metadata`, the `data` of a part) stay as they are.
    """
    if isinstance(value, list):
        return [camel(each) for each in value]
    if not isinstance(value, dict):
        return value
    found = {_JSON_NAME.sub(lambda end: end[1].upper(), name): name for name in value}
    # For a field under both names the JSON name counts.
    chosen = {name: name if name in value else given for name, given in found.items()}
    return {
        name: value[key] if name in _FREE else camel(value[key]) for name, key in chosen.items()
    }


def name_param(params: Mapping[str, Any], name: str, default: str | None = None) -> str:
    """An id in the parameters; this and the readers below raise `RpcError` for a value that they cannot take."""
    value = params.get(name)
    if value in ("", None) and default is not None:
        return default
    if not isinstance(value, str) or not 0 < len(value) <= MAX_ID:
        raise RpcError(
            Code.INVALID_PARAMS, f"{name!r} has to be a text of 1 to {MAX_ID} characters"
        )
    return value


def whole_param(params: Mapping[str, Any], name: str, least: int, most: int) -> int | None:
    """A number in the parameters, None without."""
    value = params.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise RpcError(Code.INVALID_PARAMS, f"{name!r} has to be a number from {least} to {most}")
    return value


def check_message(params: Mapping[str, Any]) -> Message:
    """The message of a SendMessage, as it is; whether an agent takes its parts is not judged here."""
    message = params.get("message")
    if not isinstance(message, dict):
        raise RpcError(Code.INVALID_PARAMS, "'message' has to be an object")
    name_param(message, "messageId")
    name_param(message, "contextId", "")
    if message.get("role") not in {"ROLE_USER", "ROLE_AGENT"}:
        raise RpcError(Code.INVALID_PARAMS, "'role' has to be ROLE_USER or ROLE_AGENT")
    parts = message.get("parts")
    if not isinstance(parts, list) or not parts:
        raise RpcError(Code.INVALID_PARAMS, "'parts' has to be a list of at least one part")
    for number, part in enumerate(parts, 1):
        if fault := part_fault(part):
            raise RpcError(Code.INVALID_PARAMS, f"part {number} {fault}")
    if not isinstance(message.get("metadata"), dict | None):
        raise RpcError(Code.INVALID_PARAMS, "'metadata' has to be an object")
    return message


def history_length(params: Mapping[str, Any]) -> int | None:
    """Messages of the history to show, None for all."""
    return whole_param(params, "historyLength", 0, 2**31)


def shortened(task: dict[str, Any], limit: int | None) -> dict[str, Any]:
    """A task with the last `limit` messages of its history, all for None (section 3.2.4)."""
    kept = {name: value for name, value in task.items() if name != "history"}
    history = task.get("history", [])
    if limit is not None:
        history = history[-limit:] if limit else []
    return {**kept, "history": history} if history else kept


def query_of(params: Mapping[str, Any]) -> TaskQuery:
    """The query in the parameters of a ListTasks."""
    return TaskQuery(
        context=name_param(params, "contextId", ""),
        state=_state(params.get("status")),
        since=_time(params.get("statusTimestampAfter")),
        limit=whole_param(params, "pageSize", 1, MAX_PAGE) or PAGE,
        page=str(params.get("pageToken") or ""),
        history=history_length(params),
        artifacts=params.get("includeArtifacts") is True,
    )


def _state(name: object) -> TaskState | None:
    if name in (None, "", "TASK_STATE_UNSPECIFIED"):
        return None
    try:
        return TaskState.from_a2a(name)
    except ValueError as error:
        raise RpcError(Code.INVALID_PARAMS, "'status' names no state of a task") from error


def _time(value: object) -> float:
    if not value:
        return 0.0
    try:
        return parse_time(str(value))
    except ProtocolViolation as error:
        raise RpcError(Code.INVALID_PARAMS, "'statusTimestampAfter' is not a time") from error
