"""Between the SDK's protobuf types and A2A JSON as tasks are stored (calls: `postroom_a2a.sdk.translation`).

Everything else of Postroom holds A2A objects as JSON, as they are stored and sent.
"""

from __future__ import annotations

from typing import Any, TypeVar

from a2a.utils.proto_utils import parse_lenient
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message as Proto

from a2a import types
from postroom.errors import InvalidInput
from postroom_a2a.sdk.translation.reading import UNREADABLE
from postroom_a2a.task_state import TaskState
from postroom_a2a.tasks import Event, Message, Task

Update = types.TaskStatusUpdateEvent | types.TaskArtifactUpdateEvent
"""A change of a task, as the SDK says it."""

_Proto = TypeVar("_Proto", bound=Proto)


def to_json(proto: Proto) -> dict[str, Any]:
    """ProtoJSON of any of the SDK's objects: camel case, empty fields left out."""
    return MessageToDict(proto)


def to_message(message: Message) -> types.Message:
    """A Message. Raises InvalidInput for JSON that is none."""
    return _parse(message, types.Message())


def to_task(task: Task) -> types.Task:
    """A Task. Raises InvalidInput for JSON that is none."""
    return _parse(task, types.Task())


def to_update(event: Event) -> Update:
    """What a StreamResponse as JSON says has changed. Raises InvalidInput for JSON that is no change."""
    response = _parse(event, types.StreamResponse())
    if response.HasField("status_update"):
        return response.status_update
    if response.HasField("artifact_update"):
        return response.artifact_update
    raise InvalidInput("no change of a task")


def _parse(value: dict[str, Any], proto: _Proto) -> _Proto:
    try:
        return parse_lenient(value, proto)
    except UNREADABLE as error:
        raise InvalidInput(f"not a {type(proto).__name__} of A2A 1.0: {error}") from error


def event_json(update: Update) -> Event:
    """A change as a StreamResponse in JSON."""
    said = to_json(update)
    if isinstance(update, types.TaskStatusUpdateEvent):
        return {"statusUpdate": said}
    return {"artifactUpdate": {**said, "artifact": _with_parts(said.get("artifact", {}))}}


def artifacts_json(task: types.Task) -> list[dict[str, Any]]:
    """The artifacts of a Task."""
    return [_with_parts(to_json(artifact)) for artifact in task.artifacts]


def _with_parts(artifact: dict[str, Any]) -> dict[str, Any]:
    return {"parts": [], **artifact}


def state_of(number: types.TaskState) -> TaskState | None:
    """The state with that number of the protobuf enumeration; None for "unspecified".

    Raises:
        InvalidInput: there is none.
    """
    if number == types.TaskState.TASK_STATE_UNSPECIFIED:
        return None
    try:
        return TaskState.from_a2a(types.TaskState.Name(number))
    except ValueError as error:
        raise InvalidInput(f"{number} is no state of a task") from error


def request(message: Message) -> types.SendMessageRequest:
    """The request that brings a message."""
    return types.SendMessageRequest(message=to_message(message))


def before_answer(task: Task) -> types.Task | None:
    """The task as it was when its agent was told the last message; None if that was the request itself.

    An executor of the SDK is shown the task that waits, beside the answer.
    """
    history = list(task.get("history", ()))
    if len(history) < 2:
        return None
    history.pop()
    status: dict[str, Any] = {"state": TaskState.INPUT_REQUIRED.a2a}
    if len(history) > 1 and history[-1].get("role") == "ROLE_AGENT":
        status["message"] = history.pop()
    return to_task({**task, "status": status, "history": history})
