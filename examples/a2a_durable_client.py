"""A call of the agent in `a2a_durable_server.py`, which may be started later, with the client of the A2A SDK.

python examples/a2a_durable_client.py nats://127.0.0.1:4222 "good morning"
"""

from __future__ import annotations

import asyncio
import sys

from a2a.client import ClientConfig
from a2a.helpers import get_stream_response_text, new_text_message

from a2a import types
from postroom_a2a import connect, durable_interfaces, register, request_subject


async def main(url: str, text: str) -> None:
    connection = await connect(url)
    card = types.AgentCard(
        capabilities=types.AgentCapabilities(streaming=True),
        supported_interfaces=durable_interfaces(request_subject("echo")),
    )
    client = register(ClientConfig(), connection).create(card)
    message = new_text_message(text, role=types.Role.ROLE_USER)
    async for event in client.send_message(types.SendMessageRequest(message=message)):
        print(get_stream_response_text(event))
    await connection.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:3]))
