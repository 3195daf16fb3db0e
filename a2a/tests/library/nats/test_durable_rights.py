"""What users of a NATS server must be allowed for durable calls, and what they then cannot do to others."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.aio.client import Client

from library.nats.durableagent import (
    SUBJECT,
    Agent,
    Desk,
    ask,
    collect,
    open_desk,
    send,
    wait_for,
)
from postroom_a2a.binding.frames import Request
from postroom_a2a.durable.client import DurableCaller
from postroom_a2a.durable.server import DurableServer
from postroom_a2a.durable.streams import Streams
from postroom_a2a.errors import PostroomError
from postroom_a2a.nats.jetstream import JetStream
from postroom_a2a.nats.mailbox import Mailbox

pytestmark = pytest.mark.anyio

PROVISIONED = Streams(create=False)
DOCUMENT = Path(__file__).parents[4] / "docs" / "binding.md"


def rights(of: str, **names: str) -> dict[str, list[str]]:
    """What the table of the document allows."""
    section = DOCUMENT.read_text().partition("**Rights.**")[2].partition("\n**")[0]
    allowed: dict[str, list[str]] = {"publish": [], "subscribe": []}
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 4 and cells[0] == of:
            for subject in re.findall(r"`([^`]+)`", cells[2]):
                for name, value in {"ns": "a2a", "agent": "echo", **names}.items():
                    subject = subject.replace(f"<{name}>", value)  # noqa: PLW2901
                allowed[cells[1]].append(subject)
    return allowed


def config() -> str:
    durable = {"durable": "a2a_agent_echo_requests_server"}
    users = [
        {"user": "operations", "password": "p"},
        {"user": "server", "password": "p", "permissions": rights("server", **durable)},
        *(
            {"user": name, "password": "p", "permissions": rights("client", client=name)}
            for name in ("alice", "mallory")
        ),
    ]
    return json.dumps({"authorization": {"users": users}})


class Users:
    """Connections of users, and what the NATS server refused them."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self.refused: list[str] = []

    async def connect(self, user: str) -> Client:
        async def told(error: Exception) -> None:
            self.refused.append(str(error))

        return await connected(
            self._desk, user, inbox_prefix=f"_INBOX_{user}".encode(), error_cb=told
        )


async def connected(desk: Desk, user: str, **options: Any) -> Client:
    """nats-py's own, since its words for what is refused are asked for."""
    client = await nats.connect(desk.server.url, user=user, password="p", **options)
    desk.stack.push_async_callback(client.close)
    return client


@pytest.mark.requirement("binding-durable-begun-once")
async def test_the_rights_of_the_table_suffice(tmp_path: Path):
    async with open_desk(tmp_path, config=config()) as desk:
        users = Users(desk)
        operations = await connected(desk, "operations")
        await provision(operations)
        agents = [Agent(), Agent()]
        for agent in agents:
            await enter(desk, await users.connect("server"), agent)
        caller = await call_as(desk, users, "alice")
        for n in range(10):
            assert await ask(caller, f"echo {n}") == {"echo": f"echo {n}"}
        events = await collect(caller, send("count 400", "message/stream"))
        assert [event.result for event in events] == list(range(400))
        held = asyncio.create_task(ask(caller, "hold"))
        await wait_for(lambda: agents[0].running + agents[1].running)
        for n in range(10):  # until the replica that holds it gets one
            await caller.call(Request(f"c{n}", "tasks/cancel", {"id": "t"}), timeout=10)
            if held.done():
                break
        await held
        await caller.close()
        assert users.refused == []


@pytest.mark.requirement("binding-durable-begun-once")
async def test_with_the_rights_of_the_table_a_client_reaches_nothing_of_another(tmp_path: Path):
    async with open_desk(tmp_path, config=config()) as desk:
        users = Users(desk)
        await provision(await connected(desk, "operations"))
        agent = Agent()
        await enter(desk, await users.connect("server"), agent)
        alice = await call_as(desk, users, "alice")
        assert await ask(alice, "mine") == {"echo": "mine"}
        assert users.refused == []

        mallory = await users.connect("mallory")
        await mallory.publish("a2a.client.alice.responses", b"forged")
        await mallory.publish("$KV.A2A_CLAIMS.A2A_REQUESTS.1.1", b"claimed")
        await mallory.publish("$JS.API.STREAM.PURGE.A2A_RESPONSES", b"")
        await mallory.publish("$JS.API.STREAM.MSG.GET.A2A_RESPONSES", b'{"seq":1}')
        durable = "A2A_REQUESTS.a2a_agent_echo_requests_server"
        await mallory.publish(f"$JS.API.CONSUMER.MSG.NEXT.{durable}", b"1", "_INBOX_mallory.x")
        await mallory.subscribe("a2a.client.alice.responses")
        await mallory.subscribe("_INBOX_alice.>")
        await mallory.flush()
        await wait_for(lambda: len(users.refused) >= 7)
        reader = await call_as(desk, users, "mallory", client="alice")
        with pytest.raises(PostroomError):
            await ask(reader, "answer me as alice", timeout=3)
        assert agent.begun == ["mine"]
        assert alice.responses.counters.malformed == 0
        assert await ask(alice, "still mine") == {"echo": "still mine"}


async def provision(connection: Client) -> None:
    """What operations make beforehand."""
    js, streams = JetStream(Mailbox(connection)), Streams()
    await streams.ensure_requests(js, SUBJECT)
    await streams.ensure_responses(js, "a2a")
    await streams.ensure_claims(js)


async def enter(desk: Desk, connection: Client, agent: Agent) -> None:
    server = DurableServer(connection, SUBJECT, agent, streams=PROVISIONED, drain=1.0)
    await desk.stack.enter_async_context(server)


async def call_as(desk: Desk, users: Users, name: str, client: str = "") -> DurableCaller:
    connection = await users.connect(name)
    caller = DurableCaller(connection, SUBJECT, client=client or name, streams=PROVISIONED)
    desk.stack.push_async_callback(caller.close)
    return caller
