"""Large content by reference, over a real server."""

from __future__ import annotations

import hashlib
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from a2a.client import ClientConfig
from a2a.client.errors import A2AClientError

from a2a import types
from library.nats.streams import jetstream
from library.translation.agents import Scripted
from postroom_a2a.binding.frames import CONTENT, Request
from postroom_a2a.errors import MessageTooLarge, NotFound, ProtocolViolation, StreamFull
from postroom_a2a.live.calling import CoreCaller, new_id
from postroom_a2a.live.serving import CoreServer
from postroom_a2a.nats.objects import ObjectBucket
from postroom_a2a.sdk.operations import SdkOperations
from postroom_a2a.sdk.references import LargeContent, parts_of
from postroom_a2a.sdk.server import NatsA2AServer, core_interfaces
from postroom_a2a.sdk.translation import OPERATIONS, V03, V10, Dialect
from postroom_a2a.sdk.transport import register

pytestmark = pytest.mark.anyio

LARGE = bytes(range(256)) * 80_000  # 20 MB
ENOUGH = LARGE[:5_000_000]  # five times what one message may have
SUBJECT = "a2a.agent.large.rpc"


def task(*parts: types.Part) -> types.Task:
    return types.Task(
        id="t-1",
        context_id="c-1",
        status=types.TaskStatus(state=types.TaskState.TASK_STATE_COMPLETED),
        artifacts=[types.Artifact(artifact_id="a-1", parts=parts)],
    )


async def get_task(
    caller: CoreCaller, dialect: Dialect, *, binary: bool = False, asked: bool = True
) -> Any:
    operation = OPERATIONS["GetTask"]
    wanted = types.GetTaskRequest(id="t-1")
    request = Request(
        new_id(),
        dialect.method(operation),
        wanted.SerializeToString() if binary else dialect.write_params(operation, wanted),
        binary=binary,
        parameters={"A2A-Extensions": CONTENT} if asked else {},
    )
    answer = await caller.call(request, timeout=20)
    if answer.error is not None:
        return answer.error
    if binary:
        return types.Task.FromString(answer.result)
    return dialect.read_result(operation, answer.result)


@pytest.mark.requirement("a2a-parts-pass")
@pytest.mark.parametrize(
    "dialect, binary", [(V10, True), (V10, False), (V03, False)], ids=["protobuf", "1.0", "0.3"]
)
async def test_a_large_artifact_arrives_whole(tmp_path: Path, dialect: Dialect, binary: bool):
    sent = task(
        types.Part(raw=LARGE, media_type="application/pdf", filename="a.pdf"),
        types.Part(text="short"),
        types.Part(text="é" * 400_000, metadata={"kept": "yes"}),
    )
    original = types.Task.FromString(sent.SerializeToString())
    async with jetstream(tmp_path) as (js, connection):
        content = await LargeContent.open(js)
        operations = SdkOperations(Scripted(sent), content=content)
        async with CoreServer(connection, SUBJECT, operations):
            caller = CoreCaller(connection, SUBJECT)
            found = await get_task(caller, dialect, binary=binary)
            large = found.artifacts[0].parts[0]
            assert large.url.startswith("nats-object://A2A_CONTENT/")
            assert (large.media_type, large.filename) == ("application/pdf", "a.pdf")
            assert large.metadata[CONTENT]["digest"] == hashlib.sha256(LARGE).hexdigest()
            url = large.url
            await content.attach(found)
            assert list(parts_of(found)) == list(parts_of(original))
            assert sent == original  # the agent's own task was not touched
            again = await get_task(caller, dialect, binary=binary)
            assert again.artifacts[0].parts[0].url == url  # not stored a second time


@pytest.mark.requirement("a2a-parts-pass")
async def test_a_caller_that_did_not_ask_gets_content_or_a_clear_error(tmp_path: Path):
    async with jetstream(tmp_path) as (js, connection):
        handler = Scripted(task(types.Part(raw=bytes(500_000))))
        operations = SdkOperations(handler, content=await LargeContent.open(js))
        async with CoreServer(connection, SUBJECT, operations):
            caller = CoreCaller(connection, SUBJECT)
            found = await get_task(caller, V10, asked=False)
            assert len(found.artifacts[0].parts[0].raw) == 500_000
            handler.answer = task(types.Part(raw=ENOUGH))
            error = await get_task(caller, V10, asked=False)
            assert "limit" in error.message


async def test_events_of_a_stream_have_references_too(tmp_path: Path):
    event = types.TaskArtifactUpdateEvent(
        task_id="t-1",
        artifact=types.Artifact(artifact_id="a-1", parts=[types.Part(raw=bytes(2_000_000))]),
    )
    async with jetstream(tmp_path) as (js, connection):
        content = await LargeContent.open(js)
        operations = SdkOperations(Scripted(events=[event]), content=content)
        async with CoreServer(connection, SUBJECT, operations):
            caller = CoreCaller(connection, SUBJECT)
            message = types.SendMessageRequest(message=types.Message(message_id="m"))
            request = Request(
                new_id(),
                "SendStreamingMessage",
                message.SerializeToString(),
                binary=True,
                parameters={"A2A-Extensions": CONTENT},
            )
            async with aclosing(caller.stream(request, timeout=20)) as answers:
                found = [types.StreamResponse.FromString(each.result) async for each in answers]
            assert len(found) == 1
            await content.attach(found[0])
            assert found[0].artifact_update == event


@pytest.mark.requirement("a2a-parts-pass")
@pytest.mark.parametrize("binding", ["NATS", "urn:postroom:a2a:nats:1"])
async def test_a_client_of_the_sdk_gets_what_the_agent_made(tmp_path: Path, binding: str):
    made = task(types.Part(raw=ENOUGH, media_type="application/pdf"))
    streamed = types.TaskArtifactUpdateEvent(
        task_id="t-1", artifact=types.Artifact(artifact_id="a", parts=[types.Part(raw=ENOUGH)])
    )
    async with jetstream(tmp_path) as (js, connection):
        content = await LargeContent.open(js)
        handler = Scripted(made, events=[streamed])
        card = types.AgentCard(
            supported_interfaces=core_interfaces(SUBJECT),
            capabilities=types.AgentCapabilities(streaming=True),
        )
        config = ClientConfig(supported_protocol_bindings=[binding])
        async with NatsA2AServer(connection, subject=SUBJECT, handler=handler, content=content):
            client = register(config, connection, content=content).create(card)
            assert await client.get_task(types.GetTaskRequest(id="t-1")) == made
            request = types.SendMessageRequest(message=types.Message(message_id="m"))
            events = [event async for event in client.send_message(request)]
            assert [event.artifact_update for event in events] == [streamed]
            await js.api("STREAM.PURGE.OBJ_A2A_CONTENT")
            with pytest.raises(A2AClientError, match="gone"):
                await client.get_task(types.GetTaskRequest(id="t-1"))
            await client.close()


async def test_many_small_parts_that_do_not_fit_together_go_by_reference(tmp_path: Path):
    async with jetstream(tmp_path) as (js, connection):
        content = await LargeContent.open(js)
        small = task(*(types.Part(raw=bytes([n]) * 1000) for n in range(9)))
        assert await content.detach(small) is small
        many = task(*(types.Part(raw=bytes([n]) * 200_000) for n in range(9)))
        sent = await content.detach(many)
        assert sent.ByteSize() < connection.max_payload
        inline = [part for part in parts_of(sent) if part.raw]
        assert 0 < len(inline) < 9
        await content.attach(sent)
        assert sent == many


@pytest.mark.requirement("a2a-parts-pass")
async def test_a_reference_that_is_not_true_is_refused(tmp_path: Path):
    async with jetstream(tmp_path) as (js, _):
        content = await LargeContent.open(js, threshold=10, limit=5000)
        sent = await content.detach(task(types.Part(raw=bytes(2000))))
        reference = types.Part()
        reference.CopyFrom(sent.artifacts[0].parts[0])

        def part(url: str = reference.url, **said: Any) -> types.Part:
            meta = {**dict(reference.metadata[CONTENT].items()), **said}
            return types.Part(url=url, metadata={CONTENT: meta})

        for bad in (
            part(digest="00"),
            part(size=2001),
            part(size="x"),
            part(kind="data"),
            part(url="nats-object://OTHER/x"),
            part(url="nats-object://A2A_CONTENT/a/b"),
        ):
            with pytest.raises(ProtocolViolation):
                await content.attach(bad)
        for much in (part(size=5001), part(size=1999)):
            with pytest.raises(MessageTooLarge):
                await content.attach(much)
        plain = types.Part(url=reference.url)
        assert await content.attach(plain) is plain
        assert plain.url


async def test_content_that_has_expired_is_told_so(tmp_path: Path):
    async with jetstream(tmp_path) as (js, _):
        content = await LargeContent.open(js, max_age=100)
        sent = await content.detach(task(types.Part(raw=bytes(300_000))))
        config = (await js.api("STREAM.INFO.OBJ_A2A_CONTENT"))["config"]
        assert config["max_age"] == 100 * 10**9
        await js.api("STREAM.PURGE.OBJ_A2A_CONTENT")
        with pytest.raises(NotFound, match="gone"):
            await content.attach(sent)


async def test_content_that_cannot_be_stored_is_sent_along_where_it_fits(tmp_path: Path):
    async with jetstream(tmp_path) as (js, _):
        bucket = await ObjectBucket.open(js, "full", storage="memory", max_bytes=1000)
        content = LargeContent(bucket)
        fits = task(types.Part(raw=bytes(300_000)))
        assert await content.detach(fits) is fits
        with pytest.raises(StreamFull):
            await content.detach(task(types.Part(raw=bytes(2_000_000))))
