"""The work that every contender does: an agent that answers at once with the text that it was sent.

The first word of the text says how: `message` with a Message, `task` with a completed Task, `stream` with a Task, a
status, an artifact and the completed status.
"""
# ruff: noqa: ARG002 - the SDK's interfaces, of which an agent that answers at once needs little

from __future__ import annotations

import random
from collections.abc import AsyncGenerator
from typing import NoReturn

from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.context import ServerCallContext
from a2a.server.events import Event, EventQueue
from a2a.server.request_handlers import DefaultRequestHandler, RequestHandler
from a2a.server.tasks import InMemoryTaskStore
from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    Artifact,
    Message,
    Part,
    Role,
    SendMessageRequest,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from a2a.utils.errors import UnsupportedOperationError

MESSAGE = "message"


def new_id() -> str:
    """A new id, as cheap as Node's `randomUUID`: `uuid.uuid4` would cost a tenth of a call."""
    return f"{random.getrandbits(128):032x}"


def text(work: str, size: int) -> str:
    """What is sent for `work`: `size` bytes."""
    return f"{work} ".ljust(size, "x")


def request(content: str) -> SendMessageRequest:
    """A new request that carries `content`."""
    part = Part(text=content)
    return SendMessageRequest(
        message=Message(message_id=new_id(), role=Role.ROLE_USER, parts=[part])
    )


def card(binding: str, url: str) -> AgentCard:
    """The agent's card, with its one interface."""
    return AgentCard(
        name="instant",
        description="Answers at once.",
        version="1",
        supported_interfaces=[
            AgentInterface(url=url, protocol_binding=binding, protocol_version="1.0")
        ],
        capabilities=AgentCapabilities(streaming=True),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[AgentSkill(id="answer", name="answer", description="Answers.", tags=["answer"])],
    )


class InstantExecutor(AgentExecutor):
    """The agent for handlers that run an executor."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Answer."""
        if context.message is None or context.task_id is None or context.context_id is None:
            raise ValueError("the handler gave no message or no ids")
        for event in _events(context.message, context.task_id, context.context_id):
            await event_queue.enqueue_event(event)

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Never asked for."""
        raise UnsupportedOperationError


class TrivialHandler(RequestHandler):
    """The same agent without an executor, a store or a queue: what is left is the transport."""

    async def on_message_send(
        self, params: SendMessageRequest, context: ServerCallContext
    ) -> Task | Message:
        """Answer."""
        asked = params.message
        if _work(asked) == MESSAGE:
            return _echo(asked, new_id())
        task = _task(asked, new_id(), new_id(), TaskState.TASK_STATE_COMPLETED)
        task.artifacts.append(_artifact(asked))
        return task

    async def on_message_send_stream(
        self, params: SendMessageRequest, context: ServerCallContext
    ) -> AsyncGenerator[Event]:
        """Answer event by event."""
        for event in _events(params.message, new_id(), new_id()):
            yield event

    async def on_get_task(self, params: object, context: ServerCallContext) -> NoReturn:
        """Never asked for, like all below it."""
        raise UnsupportedOperationError

    async def on_subscribe_to_task(
        self, params: object, context: ServerCallContext
    ) -> AsyncGenerator[Event]:
        """Never asked for."""
        raise UnsupportedOperationError
        yield  # makes it a generator

    on_list_tasks = on_get_task
    on_cancel_task = on_get_task
    on_create_task_push_notification_config = on_get_task
    on_get_task_push_notification_config = on_get_task
    on_list_task_push_notification_configs = on_get_task
    on_delete_task_push_notification_config = on_get_task
    on_get_extended_agent_card = on_get_task


def handler(name: str, agent_card: AgentCard) -> RequestHandler:
    """The SDK's handler ("sdk") or ours ("ours") with the agent behind it, or the trivial one ("trivial")."""
    if name == "trivial":
        return TrivialHandler()
    if name == "ours":
        # Here, since the peers of others run without Postroom.
        from postroom_a2a.sdk.handling import AgentRequestHandler

        return AgentRequestHandler(InstantExecutor(), agent_card)
    return DefaultRequestHandler(
        agent_executor=InstantExecutor(), task_store=InMemoryTaskStore(), agent_card=agent_card
    )


def _work(asked: Message) -> str:
    return asked.parts[0].text.partition(" ")[0]


def _events(asked: Message, task_id: str, context_id: str) -> list[Event]:
    work = _work(asked)
    if work == MESSAGE:
        return [_echo(asked, context_id)]
    task = _task(asked, task_id, context_id, TaskState.TASK_STATE_SUBMITTED)
    completed = _status(task, TaskState.TASK_STATE_COMPLETED)
    if work == "task":
        task.artifacts.append(_artifact(asked))
        return [task, completed]
    artifact = TaskArtifactUpdateEvent(
        task_id=task_id, context_id=context_id, artifact=_artifact(asked), last_chunk=True
    )
    return [task, _status(task, TaskState.TASK_STATE_WORKING), artifact, completed]


def _echo(asked: Message, context_id: str) -> Message:
    return Message(
        message_id=new_id(),
        context_id=context_id,
        role=Role.ROLE_AGENT,
        parts=[Part(text=asked.parts[0].text)],
    )


def _task(asked: Message, task_id: str, context_id: str, state: TaskState) -> Task:
    return Task(id=task_id, context_id=context_id, status=TaskStatus(state=state), history=[asked])


def _artifact(asked: Message) -> Artifact:
    return Artifact(artifact_id=new_id(), parts=[Part(text=asked.parts[0].text)])


def _status(task: Task, state: TaskState) -> TaskStatusUpdateEvent:
    return TaskStatusUpdateEvent(
        task_id=task.id, context_id=task.context_id, status=TaskStatus(state=state)
    )
