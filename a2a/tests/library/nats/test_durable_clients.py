"""Durable clients that come and go: none keeps another out of the answers, however it ends."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from a2a.client import ClientConfig
from a2a.helpers import new_text_message

from a2a import types
from library.nats.durableagent import SUBJECT, Desk, open_desk
from library.translation.agents import MESSAGE, Scripted
from postroom_a2a import JetStreamA2AServer, durable_interfaces, register
from postroom_a2a.durable import answer_reader
from postroom_a2a.nats.jetstream import JetStream

pytestmark = pytest.mark.anyio

STREAM = "A2A_RESPONSES"
CARD = types.AgentCard(supported_interfaces=durable_interfaces(SUBJECT))


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncGenerator[Desk]:
    """An agent whose stream of answers allows three consumers."""
    async with open_desk(tmp_path) as desk:
        js = await desk.jetstream()
        await js.ensure_stream(STREAM, ["a2a.client.*.responses"], max_consumers=3)
        server = JetStreamA2AServer(await desk.connect(), subject=SUBJECT, handler=Scripted())
        await desk.stack.enter_async_context(server)
        yield desk


async def told(connection: Any) -> Any:
    """A client of its own that has had an answer; it is open still."""
    client = register(ClientConfig(streaming=False), connection).create(CARD)
    message = new_text_message("hi", role=types.Role.ROLE_USER)
    request = types.SendMessageRequest(message=message)
    (event,) = [event async for event in client.send_message(request)]
    assert event.message.parts[0].text == MESSAGE.parts[0].text
    return client


async def consumers(js: JetStream) -> int:
    return (await js.api(f"STREAM.INFO.{STREAM}"))["state"]["consumer_count"]


@pytest.mark.both_connections
@pytest.mark.requirement("binding-durable-begun-once")
@pytest.mark.parametrize("how", ["client", "close", "drain", "block"])
async def test_clients_that_end_make_room_for_as_many_others(
    desk: Desk, how: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(answer_reader, "INACTIVE", 300.0)
    for _ in range(20):
        connection = await desk.connect()
        match how:
            case "client":
                await (await told(connection)).close()
            case "block":
                async with connection:
                    await told(connection)
            case _:
                await told(connection)
                await getattr(connection, how)()


@pytest.mark.requirement("binding-durable-begun-once")
async def test_clients_of_one_connection_share_a_consumer_until_the_last_has_closed(desk: Desk):
    connection, js = await desk.connect(), await desk.jetstream()
    clients = [await told(connection) for _ in range(5)]
    assert await consumers(js) == 1
    for client in clients[1:]:
        await client.close()
    assert await consumers(js) == 1
    assert (await clients[0].get_task(types.GetTaskRequest(id="t-1"))).id == "t-1"
    await clients[0].close()
    assert await consumers(js) == 0
    await (await told(connection)).close()


@pytest.mark.requirement("binding-durable-begun-once")
async def test_what_clients_that_crashed_have_left_keeps_a_new_one_waiting_and_not_out(desk: Desk):
    for _ in range(3):
        connection = await desk.connect(allow_reconnect=False)
        await told(connection)
        cut(connection)
    await told(await desk.connect())


def cut(connection: Any) -> None:
    """End it as SIGKILL would: the server sees no more than the end of the socket."""
    session = getattr(connection, "_session", None)
    if session is not None:
        connection._closed = True
        session.transport.abort()
    else:
        connection._transport._io_writer.transport.abort()
