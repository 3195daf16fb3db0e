"""The faults of the wire's first implementation that core NATS knows, by their numbers: none of them is ours."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing
from pathlib import Path

import pytest
from nats.aio.msg import Msg

from library.nats.agent import SUBJECT, TIMEOUT, PlainAgent, connected, scene
from library.nats.rawpeer import AnsweredError, RawClient, wire
from library.servers import open_server
from postroom_a2a.binding import subjects
from postroom_a2a.binding.frames import Request, Response
from postroom_a2a.errors import (
    InvalidInput,
    InvalidName,
    MessageTooLarge,
    RequestTimeout,
    StreamBroken,
)
from postroom_a2a.live.calling import CoreCaller, new_id
from postroom_a2a.live.serving import CoreServer
from postroom_a2a.nats.port import Frame

pytestmark = pytest.mark.anyio


async def test_fault_8_head_of_line_blocking_a_cancel_overtakes_the_call_it_is_about(
    tmp_path: Path,
):
    async with scene(tmp_path, concurrency=1) as s, aclosing(s.stream("stream-wait")) as events:
        await anext(events)
        assert (await s.call("cancel")).result == {"got": True}
        assert s.server.statistics().running == 1


async def test_fault_10_one_malformed_answer_fails_one_call_and_no_later_one(tmp_path: Path):
    async with scene(tmp_path) as s:
        reading = asyncio.create_task(_read(s.stream("stream-wait", {"count": 1})))
        await s.agent.running.wait()
        inbox = next(iter(s.caller._mailbox._waiting))
        await s.serving.publish(inbox, b"\xff nonsense")
        with pytest.raises(Exception, match="not JSON"):
            await reading
        assert (await s.call("echo", [1])).result == [1]
        assert len(await _read(s.stream("stream"))) == 3


async def _read(stream: AsyncGenerator[Response, None]) -> list[object]:
    return [event.result async for event in stream]


async def test_fault_11_without_a_queue_group_each_replica_runs_each_request_unless_asked_for(
    tmp_path: Path,
):
    async with open_server(tmp_path, jetstream=False) as url, AsyncExitStack() as stack:
        calling = await stack.enter_async_context(connected(url))
        for queue, runs in ((None, 20), ("", 40)):
            agents = [PlainAgent(), PlainAgent()]
            async with AsyncExitStack() as replicas:
                for agent in agents:
                    client = await replicas.enter_async_context(connected(url))
                    server = CoreServer(client, SUBJECT, agent, queue=queue)
                    await replicas.enter_async_context(server)
                caller = CoreCaller(calling, SUBJECT)
                for _ in range(20):
                    await caller.call(Request(new_id(), "echo", 1), timeout=TIMEOUT)
                await caller.close()
            assert sum(len(agent.calls) for agent in agents) == runs


@pytest.mark.parametrize("lost", ["event", "complete"])
async def test_fault_12_a_lost_frame_of_a_stream_is_noticed(tmp_path: Path, lost: str):
    async with open_server(tmp_path, jetstream=False) as url, AsyncExitStack() as stack:
        calling = await stack.enter_async_context(connected(url))
        serving = await stack.enter_async_context(connected(url))

        async def serve(message: Msg) -> None:
            call_id = json.loads(message.data)["request"]["id"]
            numbers = (1, 3) if lost == "event" else (1, 2)
            for number in numbers:
                response = {"jsonrpc": "2.0", "id": call_id, "result": number}
                frame = {"protocol": "a2a-nats/1", "kind": "response", "response": response}
                payload = json.dumps(frame).encode()
                await serving.publish(message.reply, payload, headers={"A2A-Sequence": f"{number}"})

        await serving.subscribe(SUBJECT, cb=serve)
        await serving.flush()
        await serving.flush()
        caller = CoreCaller(calling, SUBJECT, idle=0.2)
        events = caller.stream(Request(new_id(), "stream"), timeout=TIMEOUT)
        first = [(await anext(events)).result for _ in range(1 if lost == "event" else 2)]
        with pytest.raises(StreamBroken, match="were lost" if lost == "event" else "nothing came"):
            await anext(events)
    assert first == ([1] if lost == "event" else [1, 2])


async def test_fault_13_a_client_of_the_wire_that_goes_away_ends_the_stream_at_the_agent(
    tmp_path: Path,
):
    async with scene(tmp_path) as s, wire(s.url) as peer:
        client = RawClient(peer, SUBJECT)
        async with aclosing(client.stream("stream-wait", {"count": 2})) as events:
            await anext(events)
        # It has unsubscribed and says nothing; the next frame brings the server's 503.
        async with aclosing(client.stream("stream", {"count": 100_000})) as events:
            await anext(events)
        async with asyncio.timeout(TIMEOUT):
            await s.agent.closed.wait()
    assert s.agent.yielded < 100_000


async def test_fault_14_error_codes_are_kept_on_streams_and_ids_in_malformed_frames(tmp_path: Path):
    async with scene(tmp_path, concurrency=1, spare=0, max_wait=0) as s, wire(s.url) as peer:
        client = RawClient(peer, SUBJECT)
        with pytest.raises(AnsweredError) as refused:
            _ = [event async for event in client.stream("stream-refuse", {})]
        assert (refused.value.code, refused.value.message) == (-32001, "Task not found: nope")
        with pytest.raises(AnsweredError, match="Internal error") as failed:
            _ = [event async for event in client.stream("stream-raise", {"count": 0})]
        assert "secret" not in failed.value.message
        waiting = asyncio.create_task(s.call("wait"))
        await s.agent.running.wait()
        with pytest.raises(AnsweredError) as busy:
            _ = [event async for event in client.stream("stream", {})]
        assert busy.value.code == -32050
        s.agent.release.set()
        await waiting
        payload = b'{"protocol":"other","request":{"jsonrpc":"2.0","method":"x","id":9}}'
        said = json.loads((await client.ask(payload)).payload)
    assert (said["id"], said["error"]["code"]) == (9, -32600)


async def test_fault_15_the_caller_is_who_the_subject_proves_and_what_it_states_is_only_shown(
    tmp_path: Path,
):
    def admit(frame: Frame) -> str | None:
        caller = frame.subject.rpartition(".")[2]
        return None if caller == "mallory" else caller

    stated = {"Authorization": "Bearer of bob"}
    async with open_server(tmp_path, jetstream=False) as url, AsyncExitStack() as stack:
        calling = await stack.enter_async_context(connected(url))
        serving = await stack.enter_async_context(connected(url))
        agent = PlainAgent()
        async with CoreServer(serving, f"{SUBJECT}.*", agent, admit=admit) as server:
            alice = CoreCaller(calling, f"{SUBJECT}.alice")
            mallory = CoreCaller(calling, f"{SUBJECT}.mallory")
            with pytest.raises(RequestTimeout):
                await mallory.call(Request(new_id(), "echo", [2]), timeout=0.2)
            request = Request(new_id(), "echo", [1], parameters=stated)
            assert (await alice.call(request, timeout=TIMEOUT)).result == [1]
            assert [(call.caller, call.parameters) for call in agent.calls] == [("alice", stated)]
            assert server.statistics().ignored == 1


@pytest.mark.parametrize("name", ["a.b", "a b", "é", "*", "x\n"])
def test_fault_16_a_lossy_token_and_an_illegal_subject_are_refused(name: str):
    with pytest.raises(InvalidName):
        subjects.core_subject(name)
    with pytest.raises(InvalidInput):
        subjects.subject_of("nats://a2a.agent.*.rpc")


@pytest.mark.both_connections
async def test_fault_17_a_message_over_max_payload_is_an_error_on_both_ends_that_names_it(
    tmp_path: Path,
):
    async with scene(tmp_path) as s:
        limit = s.calling.max_payload
        with pytest.raises(MessageTooLarge, match=str(limit)):
            await s.call("echo", "x" * limit)
        answer = await s.call("large", {"bytes": limit})
    assert answer.error is not None
    assert str(limit) in answer.error.message


async def test_fault_18_a_custom_inbox_prefix_holds_for_calls_and_streams(tmp_path: Path):
    async with open_server(tmp_path, jetstream=False) as url, AsyncExitStack() as stack:
        serving = await stack.enter_async_context(connected(url, inbox_prefix="_SERVER"))
        calling = await stack.enter_async_context(connected(url, inbox_prefix="_PRIVATE"))
        watching = await stack.enter_async_context(connected(url))
        seen: set[str] = set()

        async def watch(message: Msg) -> None:
            seen.update(filter(None, (message.subject, message.reply)))

        await watching.subscribe(">", cb=watch)
        await watching.flush()
        await watching.flush()
        await stack.enter_async_context(CoreServer(serving, SUBJECT, PlainAgent()))
        caller = CoreCaller(calling, SUBJECT)
        await caller.call(Request(new_id(), "echo", 1), timeout=TIMEOUT)
        events = [
            event async for event in caller.stream(Request(new_id(), "stream"), timeout=TIMEOUT)
        ]
        await watching.flush()
    assert len(events) == 3
    inboxes = {subject for subject in seen if subject != SUBJECT}
    assert any(inbox.startswith("_PRIVATE.") for inbox in inboxes)
    assert all(re.match(r"_(PRIVATE|SERVER)\.", inbox) for inbox in inboxes)
