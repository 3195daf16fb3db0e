"""What somebody is told who uses the binding wrongly, or on a NATS server that is not as it has to be."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from pathlib import Path

import nats
import pytest
from a2a.client import ClientConfig
from nats.aio.client import Client as Connection

from a2a import types
from library.nats.agent import connected
from library.servers import open_server
from library.translation.agents import Scripted
from postroom_a2a import (
    JetStreamA2AServer,
    KvTaskStore,
    LargeContent,
    NatsA2AServer,
    core_interfaces,
    core_subject,
    open_registry,
    register,
    request_subject,
)
from postroom_a2a.errors import Forbidden, InvalidInput, NoResponders
from postroom_a2a.sdk.errors import MalformedAnswerError, NoRespondersError

pytestmark = pytest.mark.anyio

CORE = core_subject("echo")
STORED = request_subject("echo")


@pytest.fixture
async def plain(tmp_path: Path) -> AsyncGenerator[Connection]:
    """A connection to a server without JetStream."""
    async with (
        open_server(tmp_path / "plain", jetstream=False) as url,
        connected(url) as connection,
    ):
        yield connection


async def ask(connection: Connection) -> None:
    card = types.AgentCard(supported_interfaces=core_interfaces(CORE))
    client = register(ClientConfig(), connection).create(card)
    await client.get_task(types.GetTaskRequest(id="t-1"))


@pytest.mark.parametrize(
    "kind, subject, text",
    [
        (NatsA2AServer, f"nats://{CORE}", "URL"),
        (JetStreamA2AServer, f"nats+js://{STORED}", "URL"),
        (NatsA2AServer, "", "not a subject"),
        (NatsA2AServer, "my agent", "not a subject"),
        (NatsA2AServer, "a2a..rpc", "not a subject"),
        (NatsA2AServer, STORED, "with JetStreamA2AServer"),
        (JetStreamA2AServer, CORE, "with NatsA2AServer"),
    ],
)
async def test_a_server_refuses_a_subject_on_which_it_would_serve_nothing(
    plain: Connection,
    kind: type[NatsA2AServer | JetStreamA2AServer],
    subject: str,
    text: str,
):
    with pytest.raises(InvalidInput, match=text):
        kind(plain, subject=subject, handler=Scripted())


@pytest.mark.parametrize("kind, subject", [(NatsA2AServer, CORE), (JetStreamA2AServer, STORED)])
async def test_a_server_refuses_to_run_no_calls_at_a_time(
    plain: Connection, kind: type[NatsA2AServer | JetStreamA2AServer], subject: str
):
    with pytest.raises(InvalidInput, match="concurrency"):
        kind(plain, subject=subject, handler=Scripted(), concurrency=0)


async def test_a_server_that_may_not_subscribe_says_so_at_its_start(tmp_path: Path):
    config = tmp_path / "server.conf"
    rights = {"publish": ["_INBOX.>"], "subscribe": ["_INBOX.>"]}
    user = {"user": "weak", "password": "weak", "permissions": rights}
    config.write_text(json.dumps({"authorization": {"users": [user]}}))

    async def quiet(_: Exception) -> None:
        """The start says it."""

    async with open_server(tmp_path / "nats", jetstream=False, config=config) as url:
        connection = await nats.connect(url, user="weak", password="weak", error_cb=quiet)
        try:
            for _ in range(2):
                with pytest.raises(Forbidden, match=CORE):
                    async with NatsA2AServer(connection, subject=CORE, handler=Scripted()):
                        pass
        finally:
            await connection.close()


async def test_without_jetstream_everything_that_needs_it_says_to_switch_it_on(plain: Connection):
    for opened in (open_registry(plain), KvTaskStore.open(plain), LargeContent.open(plain)):
        with pytest.raises(NoResponders, match="--jetstream"):
            await opened


async def test_a_call_that_nobody_serves_says_what_to_look_at(plain: Connection):
    with pytest.raises(NoRespondersError, match=r"nobody serves .* \(start its agent"):
        await ask(plain)


@pytest.mark.requirement("binding-durable-begun-once")
async def test_a_stream_that_stores_the_calls_of_a_core_subject_is_named(tmp_path: Path):
    async with open_server(tmp_path) as url, connected(url) as connection:
        await connection.jetstream().add_stream(name="GREEDY", subjects=["a2a.>"])
        async with asyncio.timeout(10):
            with pytest.raises(MalformedAnswerError, match="GREEDY"):
                await ask(connection)
