"""An A2A agent on a plain nats-server: an AgentExecutor of the A2A SDK, and nothing of Postroom but the library.

nats-server &
python examples/a2a_server.py nats://127.0.0.1:4222
"""

from __future__ import annotations

import asyncio
import signal
import sys

from a2a.helpers import new_text_message
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue

from a2a import types
from postroom_a2a import AgentRequestHandler, NatsA2AServer, connect, core_interfaces, core_subject

SUBJECT = core_subject("echo")
CARD = types.AgentCard(
    name="Echo",
    description="Repeats what it is told.",
    version="1",
    capabilities=types.AgentCapabilities(streaming=True),
    default_input_modes=["text/plain"],
    default_output_modes=["text/plain"],
    skills=[types.AgentSkill(id="echo", name="Echo", description="Repeats.", tags=["echo"])],
    supported_interfaces=core_interfaces(SUBJECT),
)


class Echo(AgentExecutor):
    """Answers with what it was told."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Answer."""
        await event_queue.enqueue_event(new_text_message(f"echo: {context.get_user_input()}"))

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Never called."""
        raise NotImplementedError("an echo is over at once")


async def main(url: str) -> None:
    ended = asyncio.Event()
    for number in (
        signal.SIGINT,
        signal.SIGTERM,
    ):  # so that calls that run are finished or answered
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    connection = await connect(url)
    handler = AgentRequestHandler(Echo(), CARD)
    async with NatsA2AServer(connection, subject=SUBJECT, handler=handler):
        print(f"serving {SUBJECT}", flush=True)
        await ended.wait()
    await connection.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "nats://127.0.0.1:4222"))
