"""The same agent on the A2A SDK's own server with all its options: what Postroom is compared with.

python tests/conformance/plain.py PORT      # the card says where gRPC is
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import grpc.aio
import httpx
import uvicorn
from a2a.helpers import new_task_from_user_message, new_text_message
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler, GrpcHandler
from a2a.server.routes import (
    create_agent_card_routes,
    create_jsonrpc_routes,
    create_rest_routes,
)
from a2a.server.tasks import (
    BasePushNotificationSender,
    InMemoryPushNotificationConfigStore,
    InMemoryTaskStore,
    TaskUpdater,
)
from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    Part,
    a2a_pb2_grpc,
)
from google.protobuf.json_format import ParseDict
from starlette.applications import Starlette

from tests.conformance.agent import PARTS, STREAM_PATIENCE


class Kit(AgentExecutor):
    """As `tests/conformance/agent.py`."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        said = context.message
        assert said is not None
        name = said.message_id
        if name.startswith("tck-message-response"):
            await event_queue.enqueue_event(new_text_message("Direct message response"))
            return
        assert context.task_id is not None
        # The SDK makes a context of its own for an answer that names only its task.
        known = context.current_task
        within = known.context_id if known is not None else context.context_id
        assert within is not None
        updater = TaskUpdater(event_queue, context.task_id, within)
        if known is None:
            await event_queue.enqueue_event(new_task_from_user_message(said))
        if name.startswith("tck-input-required"):
            await updater.requires_input(updater.new_agent_message([Part(text="More?")]))
            return
        if name.startswith("tck-reject-task"):
            await updater.reject(updater.new_agent_message([Part(text="rejected")]))
            return
        await self._work(name, updater)

    async def _work(self, name: str, updater: TaskUpdater) -> None:
        if name.startswith(("tck-stream", "test-resubscribe")):
            await updater.start_work()
        if name.startswith("test-resubscribe"):
            await asyncio.sleep(2 * STREAM_PATIENCE)
        if name.startswith("tck-stream-artifact-chunked"):
            await updater.add_artifact([Part(text="chunk-1 ")], artifact_id="c", last_chunk=False)
            await updater.add_artifact(
                [Part(text="chunk-2")], artifact_id="c", append=True, last_chunk=True
            )
        fitting = [prefix for prefix in PARTS if name.startswith(f"{prefix}-")]
        if fitting:
            part = ParseDict(PARTS[max(fitting, key=len)], Part())
            await updater.add_artifact([part])
        await updater.complete(updater.new_agent_message([Part(text="Hello from TCK")]))

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.task_id is not None
        assert context.context_id is not None
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


def card(port: int, grpc_port: int, *, legacy: bool) -> AgentCard:
    here = f"http://127.0.0.1:{port}"
    older = [AgentInterface(url=f"{here}/rpc", protocol_binding="JSONRPC", protocol_version="0.3")]
    return AgentCard(
        name="kit",
        description="Acts on the prefix of a message's id.",
        version="1",
        supported_interfaces=[
            AgentInterface(url=url, protocol_binding=binding, protocol_version="1.0")
            for url, binding in (
                (f"{here}/rpc", "JSONRPC"),
                (here, "HTTP+JSON"),
                (f"127.0.0.1:{grpc_port}", "GRPC"),
            )
        ]
        + (older if legacy else []),
        capabilities=AgentCapabilities(
            streaming=True, push_notifications=True, extended_agent_card=True
        ),
        default_input_modes=["text/plain", "application/json"],
        default_output_modes=["text/plain"],
        skills=[AgentSkill(id="kit", name="kit", description="Acts.", tags=["kit"])],
    )


async def serve(port: int, *, legacy: bool) -> None:
    """Serve all three bindings."""
    server = grpc.aio.server()
    grpc_port = server.add_insecure_port("127.0.0.1:0")
    shown = card(port, grpc_port, legacy=legacy)
    configs = InMemoryPushNotificationConfigStore()
    async with httpx.AsyncClient() as client:
        handler = DefaultRequestHandler(
            Kit(),
            InMemoryTaskStore(),
            shown,
            push_config_store=configs,
            push_sender=BasePushNotificationSender(client, configs),
            extended_agent_card=shown,
            validate_input_modes=True,
        )
        a2a_pb2_grpc.add_A2AServiceServicer_to_server(GrpcHandler(handler), server)
        await server.start()
        routes: list[Any] = [
            *create_agent_card_routes(shown, cache_control="public, max-age=60"),
            *create_jsonrpc_routes(handler, "/rpc", enable_v0_3_compat=legacy),
            *create_jsonrpc_routes(handler, "/rpc/", enable_v0_3_compat=legacy),
            *create_rest_routes(handler, enable_v0_3_compat=legacy),
        ]
        config = uvicorn.Config(Starlette(routes=routes), port=port, log_level="warning")
        await uvicorn.Server(config).serve()
        await server.stop(0)


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), legacy="--legacy" in sys.argv))
