"""The bytes of the durable wire, with peers that do what those of the TypeScript package were seen to do."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from library.nats.durableagent import (
    SUBJECT,
    Agent,
    Desk,
    ask,
    collect,
    frames_of,
    open_desk,
    send,
)
from postroom_a2a.binding.frames import Request
from postroom_a2a.durable.streams import Streams
from postroom_a2a.errors import EnvironmentFault, NoResponders
from postroom_a2a.nats.jetstream import JetStream

pytestmark = pytest.mark.anyio

DURABLE = "a2a_agent_echo_requests_server"
SUBJECT_A = "a2a.client.client-a.responses"
PARAMS = {
    "message": {
        "kind": "message",
        "role": "user",
        "messageId": "m-1",
        "parts": [{"kind": "text", "text": "hello"}],
    }
}
REQUEST = (
    b'{"protocol":"a2a-nats/1","request":{"jsonrpc":"2.0","method":"message/send","params":{"message":{"kind":"message",'
    b'"role":"user","messageId":"m-1","parts":[{"kind":"text","text":"hello"}]}},"id":1},'
    b'"responseSubject":"a2a.client.client-a.responses"}'
)
ANSWER = b'{"protocol":"a2a-nats/1","kind":"response","response":{"jsonrpc":"2.0","id":1,"result":{"echo": "hello"}}}'
CONSUMER = {"durable_name": DURABLE, "ack_policy": "explicit", "deliver_policy": "all"}


async def create_server_durable(js: JetStream, action: str = "create") -> dict:
    """What a TypeScript server asks for at its start."""
    body = {
        "config": {**CONSUMER, "filter_subject": SUBJECT},
        "stream_name": "A2A_REQUESTS",
        "action": action,
        "pedantic": False,
    }
    return await js.api(f"CONSUMER.CREATE.A2A_REQUESTS.{DURABLE}.{SUBJECT}", body)


async def pull(desk: Desk, stream: str, durable: str):
    """One message, as a TypeScript peer pulls it."""
    client = await desk.connect()
    found: asyncio.Queue = asyncio.Queue()
    inbox = client.new_inbox()
    await client.subscribe(inbox, cb=found.put)
    body = {
        "batch": 1,
        "max_bytes": 0,
        "idle_heartbeat": 500_000_000,
        "expires": 10_000_000_000,
    }
    await client.publish(
        f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{durable}", json.dumps(body).encode(), inbox
    )
    async with asyncio.timeout(10):
        while True:
            message = await found.get()
            if message.reply.startswith("$JS.ACK."):
                return client, message


@pytest.mark.requirement("a2a-http-versions")
async def test_a_typescript_client_gets_the_bytes_it_knows(tmp_path: Path):
    async with open_desk(tmp_path) as desk:
        js = await desk.jetstream()
        await js.api("STREAM.CREATE.A2A_REQUESTS", {"name": "A2A_REQUESTS", "subjects": [SUBJECT]})
        await js.api(
            "STREAM.CREATE.A2A_RESPONSES", {"name": "A2A_RESPONSES", "subjects": [SUBJECT_A]}
        )
        await desk.serve(Agent())
        name = "client-a_1_responses"
        config = {
            "durable_name": name,
            "ack_policy": "explicit",
            "deliver_policy": "all",
            "filter_subject": SUBJECT_A,
        }
        await js.api(
            f"CONSUMER.CREATE.A2A_RESPONSES.{name}.{SUBJECT_A}",
            {"config": config, "stream_name": "A2A_RESPONSES", "action": "create"},
        )
        await js.publish(SUBJECT, REQUEST)
        _, message = await pull(desk, "A2A_RESPONSES", name)
        assert message.data == ANSWER
        stream = REQUEST.replace(b"message/send", b"message/stream").replace(b"hello", b"count 2")
        await js.publish(SUBJECT, stream.replace(b'"id":1', b'"id":6'))
        async with asyncio.timeout(10):
            while len(frames := await frames_of(js, SUBJECT_A)) < 4:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert frames[1:] == [
            b'{"protocol":"a2a-nats/1","kind":"response","response":{"jsonrpc":"2.0","id":6,"result":0}}',
            b'{"protocol":"a2a-nats/1","kind":"response","response":{"jsonrpc":"2.0","id":6,"result":1}}',
            b'{"protocol":"a2a-nats/1","kind":"complete","id":6}',
        ]


@pytest.mark.requirement("a2a-http-versions")
async def test_a_typescript_server_gets_the_bytes_it_knows_and_is_understood(tmp_path: Path):
    async with open_desk(tmp_path) as desk:
        js = await desk.jetstream()
        caller = await desk.caller(client="client-a")
        call = asyncio.create_task(caller.call(Request(1, "message/send", PARAMS), timeout=10))
        await _until_stored(js, 1)
        await create_server_durable(js)
        client, message = await pull(desk, "A2A_REQUESTS", DURABLE)
        assert message.data == REQUEST
        await js.publish(SUBJECT_A, ANSWER)
        await client.publish(message.reply, b"+ACK")
        assert (await call).result == {"echo": "hello"}

        stream = asyncio.create_task(collect(caller, Request(6, "message/stream", PARAMS)))
        await _until_stored(js, 2)
        for frame in (
            {"kind": "response", "response": {"jsonrpc": "2.0", "id": 6, "result": "a"}},
            {"kind": "response", "response": {"jsonrpc": "2.0", "id": 99, "result": "other"}},
            {"kind": "response", "response": {"jsonrpc": "2.0", "id": 6, "result": "b"}},
            {"kind": "complete", "id": 6},
        ):
            body = json.dumps({"protocol": "a2a-nats/1", **frame}).encode()
            await js.publish(SUBJECT_A, body)
        assert [response.result for response in await stream] == ["a", "b"]


@pytest.mark.requirement("binding-durable-begun-once")
async def test_servers_of_both_makers_share_a_durable_whoever_was_first(tmp_path: Path):
    async with open_desk(tmp_path) as desk:
        js = await desk.jetstream()
        ours = await desk.serve(Agent(), deliver="all")
        assert ours.durable == DURABLE
        # The same settings again, which a server that finds the durable asks for.
        assert (await create_server_durable(js, "update"))["config"]["deliver_policy"] == "all"
        await desk.serve(Agent())  # its own settings do not fit, and it takes the durable as it is
        assert (await js.api("CONSUMER.NAMES.A2A_REQUESTS"))["consumers"] == [
            DURABLE,
            "a2a_agent_echo_requests_server_control",
        ]
        assert await ask(await desk.caller(), "hello") == {"echo": "hello"}


@pytest.mark.requirement("binding-durable-begun-once")
async def test_provisioned_streams_are_used_as_they_are_and_what_lacks_is_named(tmp_path: Path):
    async with open_desk(tmp_path) as desk:
        js = await desk.jetstream()
        given = Streams(create=False)
        with pytest.raises(EnvironmentFault, match=f"no stream A2A_REQUESTS that stores {SUBJECT}"):
            await desk.serve(Agent(), streams=given)
        await js.ensure_stream("A2A_REQUESTS", ["a2a.agent.other.requests"])
        with pytest.raises(EnvironmentFault, match=f"A2A_REQUESTS does not store {SUBJECT}"):
            await desk.serve(Agent(), streams=given)
        await js.ensure_stream("A2A_REQUESTS", [SUBJECT])
        await js.ensure_stream("A2A_RESPONSES", ["a2a.client.*.responses"])
        with pytest.raises(EnvironmentFault, match="no stream KV_A2A_CLAIMS"):
            await desk.serve(Agent(), streams=given)
        await Streams().ensure_claims(js)
        await desk.serve(Agent(), streams=given)
        caller = await desk.caller(streams=given)
        assert await ask(caller, "hello") == {"echo": "hello"}
        other = "a2a.agent.nobody.requests"
        with pytest.raises(EnvironmentFault, match=f"does not store {other}"):
            await ask(await desk.caller(other, streams=given), "hello")
        await js.api("STREAM.DELETE.A2A_REQUESTS")
        with pytest.raises(NoResponders, match="no stream stores"):
            await ask(caller, "hello")


@pytest.mark.requirement("binding-durable-begun-once")
async def test_without_jetstream_both_ends_say_so(tmp_path: Path):
    async with open_desk(tmp_path, jetstream=False) as desk:
        with pytest.raises(EnvironmentFault, match="JetStream is off"):
            await desk.serve(Agent())
        with pytest.raises(EnvironmentFault, match="JetStream is off"):
            await (await desk.caller()).call(send("hello"), timeout=10)


async def _until_stored(js: JetStream, count: int) -> None:
    async with asyncio.timeout(10):
        while len(await frames_of(js, SUBJECT, "A2A_REQUESTS")) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
