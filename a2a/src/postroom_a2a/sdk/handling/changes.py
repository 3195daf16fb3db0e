"""Applies an agent's events to its task (A2A 1.0, section 4.1): plain functions that change the task in place."""

from __future__ import annotations

import uuid

from a2a.types import (
    Message,
    Role,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from a2a.utils.errors import InvalidAgentResponseError

Event = Message | Task | TaskStatusUpdateEvent | TaskArtifactUpdateEvent

TERMINAL = frozenset(
    {
        TaskState.TASK_STATE_COMPLETED,
        TaskState.TASK_STATE_CANCELED,
        TaskState.TASK_STATE_FAILED,
        TaskState.TASK_STATE_REJECTED,
    }
)
INTERRUPTED = frozenset({TaskState.TASK_STATE_AUTH_REQUIRED, TaskState.TASK_STATE_INPUT_REQUIRED})
SETTLED = TERMINAL | INTERRUPTED
"""States in which the agent does nothing until the client does, or never again."""


def begun(task_id: str, context_id: str, message: Message | None) -> Task:
    """A new task, before any event of its agent."""
    task = Task(id=task_id, context_id=context_id)
    task.status.state = TaskState.TASK_STATE_SUBMITTED
    if message is not None:
        task.history.append(message)
    return task


def copied(task: Task) -> Task:
    """A copy of the task."""
    copy = Task()
    copy.CopyFrom(task)
    return copy


def say(task: Task, message: Message) -> None:
    """Put the user's message into the history, once, behind the message of the present status."""
    if any(said.message_id == message.message_id for said in task.history):
        return
    status = task.status
    if status.HasField("message"):
        task.history.append(status.message)
        status.ClearField("message")
    task.history.append(message)


def put_status(task: Task, event: TaskStatusUpdateEvent) -> None:
    """Set the status; the message of the old one goes into the history."""
    if task.status.HasField("message"):
        task.history.append(task.status.message)
    if event.HasField("metadata"):
        task.metadata.MergeFrom(event.metadata)
    task.status.CopyFrom(event.status)


def put_artifact(task: Task, event: TaskArtifactUpdateEvent) -> None:
    """Add an artifact, replace it, or append parts to it.

    Raises:
        InvalidAgentResponseError: parts for an artifact that the task does not have.
    """
    new = event.artifact
    known = next((each for each in task.artifacts if each.artifact_id == new.artifact_id), None)
    if known is None:
        if event.append:
            raise InvalidAgentResponseError(
                f"append=True for nonexistent artifact_id={new.artifact_id!r} in task {task.id!r}. "
                "The artifact must be created (append=False) before appending parts to it."
            )
        task.artifacts.append(new)
    elif event.append:
        known.parts.extend(new.parts)
        if new.HasField("metadata"):
            known.metadata.MergeFrom(new.metadata)
    else:
        known.CopyFrom(new)


def failure_of(task: Task, text: str) -> TaskStatusUpdateEvent:
    """An update to "failed", now, with the reason."""
    event = status_of(task, TaskState.TASK_STATE_FAILED)
    said = event.status.message
    said.message_id, said.role = str(uuid.uuid4()), Role.ROLE_AGENT
    said.task_id, said.context_id = task.id, task.context_id
    said.parts.add(text=text)
    return event


def status_of(task: Task, state: TaskState, *, keep: bool = False) -> TaskStatusUpdateEvent:
    """An update to `state`, now; with the message of the present status if that is to stay."""
    status = TaskStatus(state=state)
    if keep and task.status.HasField("message"):
        status.message.CopyFrom(task.status.message)
    status.timestamp.GetCurrentTime()
    return TaskStatusUpdateEvent(task_id=task.id, context_id=task.context_id, status=status)
