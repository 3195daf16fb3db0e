"""The durable server and its callers, where no fault of others is the reason for the test."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from pathlib import Path

import pytest

from library.nats.durableagent import (
    SUBJECT,
    Agent,
    ask,
    collect,
    frames_of,
    open_desk,
    send,
    wait_for,
)
from postroom_a2a.binding.frames import Request
from postroom_a2a.durable.client import DurableCaller
from postroom_a2a.durable.server import DurableServer
from postroom_a2a.durable.streams import Streams
from postroom_a2a.errors import InvalidName, RequestTimeout, StreamBroken

pytestmark = pytest.mark.anyio


@pytest.mark.both_connections
async def test_a_call_is_answered_and_a_long_stream_is_whole_and_in_order(tmp_path: Path):
    async with open_desk(tmp_path) as desk:
        await desk.serve(Agent())
        caller = await desk.caller()
        assert await ask(caller, "echo") == {"echo": "echo"}
        responses = await collect(caller, send("count 500", "message/stream"))
        assert [response.result for response in responses] == list(range(500))


@pytest.mark.requirement("binding-durable-begun-once")
@pytest.mark.parametrize("how", ["deleted", "gap"])
async def test_a_client_that_loses_its_consumer_or_an_answer_reads_on_without_loss(
    tmp_path: Path, how: str
):
    async with open_desk(tmp_path) as desk:
        agent = Agent()
        await desk.serve(agent)
        caller = await desk.caller()
        async with aclosing(caller.stream(send("hold", "message/stream"), timeout=10)) as stream:
            assert (await anext(stream)).result == "first"
            js = await desk.jetstream()
            if how == "deleted":
                await js.api(f"CONSUMER.DELETE.A2A_RESPONSES.{caller.responses._consumer}")
            else:
                caller.responses._delivered -= 1  # as if an answer before had been lost on the way
            agent.release.set()
            assert [response.result async for response in stream] == ["last"]
        assert caller.responses.counters.recreated == 1
        assert await ask(caller, "after") == {"echo": "after"}


@pytest.mark.requirement("core-busy-told")
async def test_a_server_that_ends_gives_back_at_once_what_it_did_not_begin(tmp_path: Path):
    async with open_desk(tmp_path) as desk:
        first, second = Agent(), Agent()
        server = DurableServer(await desk.connect(), SUBJECT, first, concurrency=1, drain=10)
        async with server:
            caller = await desk.caller()
            calls = [asyncio.create_task(ask(caller, f"hold {n}", 20)) for n in range(3)]
            await wait_for(lambda: server.statistics().held == 3)
            second.release.set()
            await desk.serve(second)
            draining = asyncio.create_task(server.drain())
            await wait_for(lambda: len(second.begun) == 2)
            first.release.set()
            await asyncio.gather(draining, *calls)
        assert len(first.begun) == 1
        assert sorted(first.begun + second.begun) == ["hold 0", "hold 1", "hold 2"]


@pytest.mark.requirement("binding-durable-begun-once")
async def test_an_answer_that_is_refused_again_and_again_is_given_up_and_the_server_goes_on(
    tmp_path: Path,
):
    async with open_desk(tmp_path) as desk:
        js = await desk.jetstream()
        await js.ensure_stream("DEAD", ["a2a.deadletter.>"])
        await desk.serve(Agent())  # it makes the streams
        agent = Agent()
        subject = "a2a.agent.held.requests"
        server = await desk.serve(agent, subject, streams=Streams(create=False), max_deliver=2)
        caller = await desk.caller(subject, streams=Streams(create=False))
        call = asyncio.create_task(ask(caller, "hold", 20))
        await wait_for(lambda: agent.begun)
        await js.api("STREAM.DELETE.A2A_RESPONSES")
        agent.release.set()
        await wait_for(lambda: server.statistics().dead)
        call.cancel()
        await Streams().ensure_responses(js, "a2a")
        assert await ask(await desk.caller(subject), "after") == {"echo": "after"}
        (dead,) = await frames_of(js, "a2a.deadletter.>", "DEAD")
        assert json.loads(dead)["request"]["params"]["message"]["parts"][0]["text"] == "hold"


async def test_replicas_share_the_work(tmp_path: Path):
    async with open_desk(tmp_path) as desk:
        agents = [Agent(), Agent()]
        for agent in agents:
            await desk.serve(agent, concurrency=2)
        caller = await desk.caller()
        calls = [asyncio.create_task(ask(caller, f"hold {n}", 20)) for n in range(12)]
        await wait_for(lambda: all(agent.running == 2 for agent in agents))
        for agent in agents:
            agent.release.set()
        await asyncio.gather(*calls)
        assert all(agent.most == 2 for agent in agents)
        assert len(agents[0].begun) + len(agents[1].begun) == 12


async def test_a_call_that_nobody_answers_ends_at_its_deadline_and_is_not_begun_later(
    tmp_path: Path,
):
    async with open_desk(tmp_path) as desk:
        caller = await desk.caller()
        with pytest.raises(RequestTimeout):
            await caller.call(send("late"), timeout=0.5)
        agent = Agent()
        server = await desk.serve(agent)
        await wait_for(lambda: server.statistics().rejected)
        assert not agent.begun


async def test_a_stream_that_falls_silent_is_broken(tmp_path: Path):
    async with open_desk(tmp_path) as desk:
        await desk.serve(Agent())
        caller = await desk.caller(idle=0.1)
        with pytest.raises(StreamBroken, match="nothing came"):
            await collect(caller, send("hold", "message/stream"))


async def test_the_id_of_a_client_is_its_own_unless_a_good_one_is_given(tmp_path: Path):
    async with open_desk(tmp_path) as desk:
        connection = await desk.connect()
        ids = {DurableCaller(connection, SUBJECT).client for _ in range(10)}
        assert len(ids) == 10
        with pytest.raises(InvalidName):
            DurableCaller(connection, SUBJECT, client="a.b")


async def test_a_lane_that_is_not_the_agents_own_is_not_believed(tmp_path: Path):
    async with open_desk(tmp_path) as desk:
        caller = await desk.caller(client="peer")
        call = asyncio.create_task(caller.call(Request(1, "tasks/get", {"id": "t"}), timeout=10))
        js = await desk.jetstream()
        await caller.responses.open(SUBJECT)
        answer = b'{"protocol":"a2a-nats/1","kind":"response","response":{"jsonrpc":"2.0","id":1,"result":1}}'
        headers = {"A2A-Lane": "a2a.agent.thief.requests"}
        await js.publish("a2a.client.peer.responses", answer, headers=headers)
        await call
        assert not caller._lane
