"""A handler of the SDK's that answers from a script and keeps what it was asked."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from a2a.server.context import ServerCallContext
from a2a.server.request_handlers.request_handler import RequestHandler

from a2a import types

MESSAGE = types.Message(
    message_id="r-1", role=types.Role.ROLE_AGENT, parts=[types.Part(text="hello")]
)
TASK = types.Task(
    id="t-1",
    context_id="c-1",
    status=types.TaskStatus(state=types.TaskState.TASK_STATE_WORKING),
    artifacts=[types.Artifact(artifact_id="a-1", parts=[types.Part(text="made")])],
)
STATUS = types.TaskStatusUpdateEvent(
    task_id="t-1",
    context_id="c-1",
    status=types.TaskStatus(state=types.TaskState.TASK_STATE_COMPLETED),
)
ARTIFACT = types.TaskArtifactUpdateEvent(
    task_id="t-1", context_id="c-1", artifact=TASK.artifacts[0], last_chunk=True
)
CONFIG = types.TaskPushNotificationConfig(id="p-1", task_id="t-1", url="https://example.invalid/cb")
CARD = types.AgentCard(
    name="Echo",
    description="repeats",
    version="1",
    supported_interfaces=[
        types.AgentInterface(url="nats://a", protocol_binding="NATS", protocol_version="0.3")
    ],
    capabilities=types.AgentCapabilities(streaming=True),
)


class Scripted(RequestHandler):
    """Gives `answer` (an exception: raises it) where it is set, else what fits the operation."""

    def __init__(self, answer: Any = ..., events: list[Any] | None = None) -> None:
        self.answer = answer
        self.events = [TASK, ARTIFACT, STATUS] if events is None else events
        self.asked: Any = None
        self.context = ServerCallContext()
        self.closed = False

    def _say(self, params: Any, context: ServerCallContext, usual: Any) -> Any:
        self.asked, self.context = params, context
        if isinstance(self.answer, Exception):
            raise self.answer
        return usual if self.answer is ... else self.answer

    async def _stream(self, params: Any, context: ServerCallContext) -> AsyncGenerator[Any]:
        self._say(params, context, None)
        try:
            for event in self.events:
                if isinstance(event, Exception):
                    raise event
                yield event
        finally:
            self.closed = True

    async def on_message_send(self, params: Any, context: ServerCallContext):
        return self._say(params, context, MESSAGE)

    def on_message_send_stream(self, params: Any, context: ServerCallContext):
        return self._stream(params, context)

    def on_subscribe_to_task(self, params: Any, context: ServerCallContext):
        return self._stream(params, context)

    async def on_get_task(self, params: Any, context: ServerCallContext):
        return self._say(params, context, TASK)

    async def on_list_tasks(self, params: Any, context: ServerCallContext):
        page = types.ListTasksResponse(tasks=[TASK], page_size=50, total_size=1)
        return self._say(params, context, page)

    async def on_cancel_task(self, params: Any, context: ServerCallContext):
        return self._say(params, context, TASK)

    async def on_create_task_push_notification_config(
        self, params: Any, context: ServerCallContext
    ):
        return self._say(params, context, CONFIG)

    async def on_get_task_push_notification_config(self, params: Any, context: ServerCallContext):
        return self._say(params, context, CONFIG)

    async def on_list_task_push_notification_configs(self, params: Any, context: ServerCallContext):
        found = types.ListTaskPushNotificationConfigsResponse(configs=[CONFIG])
        return self._say(params, context, found)

    async def on_delete_task_push_notification_config(
        self, params: Any, context: ServerCallContext
    ):
        return self._say(params, context, None)

    async def on_get_extended_agent_card(self, params: Any, context: ServerCallContext):
        return self._say(params, context, CARD)
