"""The faults of other durable bindings of A2A on NATS, each shown not to be here."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import cast

import pytest
from nats.aio.client import Client

from library.nats.durableagent import (
    SUBJECT,
    Agent,
    ask,
    collect,
    frames_of,
    message,
    open_desk,
    send,
    wait_for,
)
from postroom_a2a.binding.frames import Request, encode_request
from postroom_a2a.durable.streams import Streams, trim
from postroom_a2a.errors import MessageTooLarge, StreamFull
from postroom_a2a.nats import WireConnection
from postroom_a2a.nats.port import Connection, Frame

pytestmark = pytest.mark.anyio

CLIENT = "a2a.client.peer.responses"


def frame(text: str, response_subject: str = CLIENT, call_id: int = 1) -> bytes:
    """A request as the wire has it."""
    return encode_request(
        Request(call_id, "message/send", message(text), response_subject=response_subject)
    )


@pytest.mark.requirement("binding-durable-begun-once")
async def test_fault_1_a_client_that_comes_back_with_its_id_gets_no_stale_answer(tmp_path: Path):
    async with open_desk(tmp_path) as desk:
        await desk.serve(Agent())
        former = await desk.caller(client="peer")
        assert await ask(former, "first") == {"echo": "first"}
        await former.close()
        later, beside = await desk.caller(client="peer"), await desk.caller(client="peer")
        answers = await asyncio.gather(
            *(ask(caller, str(n)) for n, caller in enumerate([later, beside] * 10))
        )
        assert answers == [{"echo": str(n)} for n in range(20)]


def counts(connection: Connection) -> tuple[int, int]:
    """Messages that the connection has sent and received."""
    if isinstance(connection, WireConnection):
        return connection.sent, connection.received
    stats = cast("Client", connection).stats
    return stats["out_msgs"], stats["in_msgs"]


@pytest.mark.requirement("binding-durable-begun-once")
async def test_fault_2_a_call_costs_the_client_one_publish_and_one_delivery_each_time(
    tmp_path: Path,
):
    async with open_desk(tmp_path) as desk:
        await desk.serve(Agent())
        caller = await desk.caller()
        await ask(caller, "warm")
        connection = caller.responses.js.mailbox.connection
        costs = []
        for _ in range(2):
            before = counts(connection)
            for n in range(50):
                await ask(caller, str(n))
            after = counts(connection)
            costs.append((after[0] - before[0], after[1] - before[1]))
        # The second message in is the word that the request is stored; a beat of the server may come between.
        for out, into in costs:
            assert 50 <= out <= 52
            assert 100 <= into <= 104


@pytest.mark.requirement("binding-durable-begun-once")
async def test_fault_3_what_is_stored_has_limits_and_consumers_of_lost_clients_go(tmp_path: Path):
    async with open_desk(tmp_path) as desk:
        await desk.serve(Agent())
        caller = await desk.caller()
        await ask(caller, "hello")
        js = await desk.jetstream()
        for stream in ("A2A_REQUESTS", "A2A_RESPONSES", "KV_A2A_CLAIMS"):
            config = (await js.api(f"STREAM.INFO.{stream}"))["config"]
            assert config["max_age"] == 24 * 3600 * 10**9
            assert 0 < config["max_bytes"] <= 1 << 30
        names = (await js.api("CONSUMER.NAMES.A2A_RESPONSES"))["consumers"]
        assert len(names) == 1
        consumer = (await js.api(f"CONSUMER.INFO.A2A_RESPONSES.{names[0]}"))["config"]
        assert consumer["inactive_threshold"] > 0
        assert consumer["mem_storage"]
        await caller.close()
        assert not (await js.api("CONSUMER.NAMES.A2A_RESPONSES"))["consumers"]


async def test_a_full_stream_of_requests_refuses_the_sender_and_loses_nothing(tmp_path: Path):
    async with open_desk(tmp_path) as desk:
        streams = Streams(max_bytes=4096)
        caller = await desk.caller(streams=streams)
        waiting = [asyncio.create_task(ask(caller, str(n))) for n in range(50)]
        done, _ = await asyncio.wait(waiting, return_when="FIRST_EXCEPTION")
        assert any(isinstance(task.exception(), StreamFull) for task in done)
        agent = Agent()
        await desk.serve(agent, streams=streams)
        results = await asyncio.gather(*waiting, return_exceptions=True)
        stored = [r["echo"] for r in results if isinstance(r, dict)]
        assert stored == agent.begun
        assert stored
        assert all(isinstance(r, dict | StreamFull) for r in results)


@pytest.mark.requirement("binding-durable-begun-once")
async def test_requests_that_are_dealt_with_make_room_and_others_stay(tmp_path: Path):
    async with open_desk(tmp_path) as desk:
        streams = Streams(max_bytes=16_384)
        agent = Agent()
        await desk.serve(agent, streams=streams)
        caller = await desk.caller(streams=streams)
        for n in range(20):
            await ask(caller, f"{n} {'x' * 300}")
        held = asyncio.create_task(ask(caller, "hold"))
        await wait_for(lambda: "hold" in agent.begun)
        js = await desk.jetstream()
        assert 0 < await trim(js, "A2A_REQUESTS", SUBJECT) <= 20
        (left,) = await frames_of(js, SUBJECT, "A2A_REQUESTS")
        assert b"hold" in left
        agent.release.set()
        assert await held == {"echo": "hold"}


@pytest.mark.requirement("binding-durable-begun-once")
async def test_fault_4_a_request_whose_answer_no_stream_takes_ends_nothing_and_is_kept_apart(
    tmp_path: Path,
):
    async with open_desk(tmp_path) as desk:
        js = await desk.jetstream()
        await js.ensure_stream("DEAD", ["a2a.deadletter.>"])
        # A client of another maker was first, and made the stream for itself alone.
        await js.ensure_stream("A2A_RESPONSES", ["a2a.client.first.responses"])
        agent = Agent()
        await desk.serve(
            agent, response_subjects=["a2a.client.*.responses", "elsewhere.client.*.responses"]
        )
        await js.publish(SUBJECT, frame("poison", "elsewhere.client.a.responses"))
        assert await ask(await desk.caller(), "after") == {"echo": "after"}
        assert agent.begun == ["after"]
        async with asyncio.timeout(10):
            while not (dead := await frames_of(js, "a2a.deadletter.>", "DEAD")):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert b"poison" in dead[0]


@pytest.mark.requirement("identity-sender-proved")
@pytest.mark.parametrize(
    "subject",
    [
        "$KV.CARDS.a2a.agents.victim",
        "a2a.agent.other.requests",
        "other.client.x.responses",
        "a2a.client.*.responses",
        "a2a.client.x y.responses",
        "a2a.client.x.responses.more",
        "",
    ],
)
async def test_fault_5_no_answer_is_written_where_answers_do_not_belong(
    tmp_path: Path, subject: str
):
    async with open_desk(tmp_path) as desk:
        js = await desk.jetstream()
        await js.ensure_stream("EVERYTHING", ["$KV.CARDS.>", "other.>"])
        agent = Agent()
        server = await desk.serve(agent)
        await js.publish(SUBJECT, frame("theft", subject))
        await js.publish(SUBJECT, b'{"protocol":"a2a-nats/1","responseSubject":"$KV.CARDS.x"}')
        assert await ask(await desk.caller(), "after") == {"echo": "after"}
        assert agent.begun == ["after"]
        assert server.statistics().rejected == 2
        assert (await js.api("STREAM.INFO.EVERYTHING"))["state"]["messages"] == 0


@pytest.mark.requirement("binding-durable-begun-once")
async def test_fault_6_a_second_agent_on_the_default_streams_gets_its_requests(tmp_path: Path):
    async with open_desk(tmp_path) as desk:
        js = await desk.jetstream()
        # As a server of another maker makes them, for its own subject.
        await js.api(
            "STREAM.CREATE.A2A_REQUESTS",
            {"name": "A2A_REQUESTS", "subjects": ["a2a.agent.first.requests"]},
        )
        await js.api(
            "STREAM.CREATE.A2A_RESPONSES",
            {"name": "A2A_RESPONSES", "subjects": ["a2a.client.one.responses"]},
        )
        for name in ("first", "second", "x_y"):
            subject = f"a2a.agent.{name}.requests"
            await desk.serve(Agent(), subject)
            assert await ask(await desk.caller(subject), name) == {"echo": name}


@pytest.mark.requirement("binding-durable-begun-once")
@pytest.mark.parametrize("kill", [False, True])
@pytest.mark.slow
async def test_fault_7_server_and_client_go_on_after_a_restart_of_nats_server(
    tmp_path: Path, kill: bool
):
    async with open_desk(tmp_path) as desk:
        agent = Agent()
        await desk.serve(agent)
        caller = await desk.caller()
        await ask(caller, "before")
        held = asyncio.create_task(ask(caller, "hold", 30))
        await wait_for(lambda: "hold" in agent.begun)
        await desk.server.restart(kill=kill)
        assert await ask(caller, "after", 30) == {"echo": "after"}
        agent.release.set()
        assert await held == {"echo": "hold"}
        assert sorted(agent.begun) == ["after", "before", "hold"]


@pytest.mark.both_connections
@pytest.mark.requirement("binding-durable-begun-once")
async def test_fault_7_a_deleted_consumer_is_made_again_where_it_was(tmp_path: Path):
    async with open_desk(tmp_path) as desk:
        agent = Agent()
        server = await desk.serve(agent)
        caller = await desk.caller()
        for n in range(3):
            await ask(caller, str(n))
        js = await desk.jetstream()
        await js.api(f"CONSUMER.DELETE.A2A_REQUESTS.{server.durable}")
        assert await ask(caller, "after") == {"echo": "after"}
        assert agent.begun == ["0", "1", "2", "after"]


async def test_a_deleted_stream_of_requests_is_made_again(tmp_path: Path):
    async with open_desk(tmp_path) as desk:
        agent = Agent()
        await desk.serve(agent)
        caller = await desk.caller()
        for n in range(3):
            await ask(caller, str(n))
        js = await desk.jetstream()
        await js.api("STREAM.DELETE.A2A_REQUESTS")
        await caller.responses.streams.ensure_requests(js, SUBJECT)
        assert await ask(caller, "after", 20) == {"echo": "after"}
        assert agent.begun == ["0", "1", "2", "after"]


@pytest.mark.requirement("core-busy-told")
async def test_fault_8_a_cancel_and_a_quick_call_overtake_a_full_house(tmp_path: Path):
    async with open_desk(tmp_path) as desk:
        agent = Agent()
        await desk.serve(agent, concurrency=1)
        caller = await desk.caller()
        await ask(caller, "learn the lane")
        held = [asyncio.create_task(ask(caller, f"hold {n}", 30)) for n in range(20)]
        await wait_for(lambda: len(agent.begun) == 2)
        get = await caller.call(Request("g", "tasks/get", {"id": "t"}), timeout=10)
        assert get.result == {"id": "t"}
        assert not any(task.done() for task in held)
        cancel = await caller.call(Request("c", "tasks/cancel", {"id": "t"}), timeout=10)
        assert cancel.result == {"cancelled": True}
        await asyncio.gather(*held)
        assert agent.most == 1


@pytest.mark.requirement("core-busy-told")
async def test_fault_8_a_cancel_overtakes_without_the_lane_too(tmp_path: Path):
    async with open_desk(tmp_path) as desk:
        agent = Agent()
        await desk.serve(agent, concurrency=2, lane=False)
        caller = await desk.caller()
        held = [asyncio.create_task(ask(caller, f"hold {n}", 30)) for n in range(2)]
        await wait_for(lambda: len(agent.begun) == 2)
        await caller.call(Request("c", "tasks/cancel", {"id": "t"}), timeout=10)
        await asyncio.gather(*held)


@pytest.mark.requirement("core-busy-told")
async def test_work_that_is_sent_to_the_lane_is_refused_and_stands_in_nobodys_way(tmp_path: Path):
    async with open_desk(tmp_path) as desk:
        agent = Agent()
        await desk.serve(agent)
        caller, js = await desk.caller(), await desk.jetstream()
        await ask(caller, "learn the lane")
        for n in range(40):
            await js.publish(f"{SUBJECT}.control", frame(f"hold {n}", call_id=n))
        await caller.call(Request("c", "tasks/cancel", {"id": "t"}), timeout=10)
        answers = [json.loads(each)["response"] for each in await frames_of(js, CLIENT)]
        assert [each["error"]["code"] for each in answers] == [-32004] * 40
        assert agent.begun == ["learn the lane"]


@pytest.mark.requirement("binding-durable-begun-once")
async def test_fault_9_a_slow_request_is_begun_once_however_many_servers_there_are(tmp_path: Path):
    async with open_desk(tmp_path) as desk:
        agents = [Agent(), Agent()]
        for agent in agents:
            await desk.serve(agent, ack_wait=0.6)
        caller = await desk.caller()
        held = asyncio.create_task(ask(caller, "hold", 30))
        await wait_for(lambda: agents[0].begun + agents[1].begun)
        js = await desk.jetstream()
        beats: asyncio.Queue[Frame] = asyncio.Queue()
        await (await desk.connect()).subscribe("$JS.ACK.A2A_REQUESTS.>", cb=beats.put)
        for _ in range(7):  # more than two times as long as a silent server would be given
            assert (await asyncio.wait_for(beats.get(), 20)).data == b"+WPI"
        info = await js.api("CONSUMER.INFO.A2A_REQUESTS.a2a_agent_echo_requests_server")
        assert info["num_redelivered"] == 0
        for agent in agents:
            agent.release.set()
        assert await held == {"echo": "hold"}
        assert agents[0].begun + agents[1].begun == ["hold"]


async def test_fault_9_a_new_durable_replays_no_history_and_what_expired_is_not_begun(
    tmp_path: Path,
):
    async with open_desk(tmp_path) as desk:
        agent, again = Agent(), Agent()
        caller = await desk.caller()
        await desk.serve(agent)
        for n in range(3):
            await ask(caller, str(n))
        # Another durable of the same requests: they are done, and their claims say so.
        await desk.serve(again, durable="another", deliver="all")
        js = await desk.jetstream()
        late = {"A2A-Deadline": str(int(time.time() * 1000) - 1)}
        await js.publish("a2a.agent.late.requests", frame("late"), headers=late)
        await js.publish("a2a.agent.late.requests", frame("abandoned"))
        sleeper = Agent()
        server = await desk.serve(
            sleeper, "a2a.agent.late.requests", abandon_after=0.0, deliver="all"
        )
        await wait_for(lambda: server.statistics().rejected == 2)
        assert (agent.begun, again.begun, sleeper.begun) == (["0", "1", "2"], [], [])
        assert not await frames_of(js, CLIENT)


async def test_fault_10_a_malformed_message_among_the_answers_harms_no_call(tmp_path: Path):
    async with open_desk(tmp_path) as desk:
        await desk.serve(Agent())
        caller = await desk.caller(client="peer")
        await ask(caller, "before")
        js = await desk.jetstream()
        for junk in (b"", b"{", b"[]", b'{"kind":"surprise","protocol":"a2a-nats/1"}', b"\x00x"):
            await js.publish(CLIENT, junk)
        assert await ask(caller, "after") == {"echo": "after"}
        assert caller.responses.counters.malformed == 5
        assert await ask(await desk.caller(client="peer"), "later") == {"echo": "later"}


@pytest.mark.both_connections
@pytest.mark.requirement("core-sdk-client")
async def test_fault_17_what_is_too_large_is_told_in_both_directions(tmp_path: Path):
    async with open_desk(tmp_path) as desk:
        await desk.serve(Agent())
        caller = await desk.caller()
        with pytest.raises(MessageTooLarge, match="1048576"):
            await ask(caller, "x" * 1_100_000)
        response = await caller.call(send("big"), timeout=10)
        assert response.error is not None
        assert "1048576" in response.error.message
        events = await collect(caller, send("big", "message/stream"))
        assert events[0].result == "first"
        assert events[1].error is not None
        assert "1048576" in events[1].error.message
        assert await ask(caller, "after") == {"echo": "after"}


async def test_a_wrong_request_with_somewhere_to_answer_is_answered(tmp_path: Path):
    async with open_desk(tmp_path) as desk:
        server = await desk.serve(Agent())
        js = await desk.jetstream()
        await js.publish(
            SUBJECT, json.dumps({"protocol": "x", "responseSubject": CLIENT, "id": 7}).encode()
        )
        await js.publish(SUBJECT, b"no frame")
        await wait_for(lambda: server.statistics().answered + server.statistics().rejected == 2)
        (answer,) = await frames_of(js, CLIENT)
        assert json.loads(answer)["response"]["error"]["code"] == -32600


async def test_an_error_in_a_stream_is_told_with_its_code_and_the_stream_ends(tmp_path: Path):
    async with open_desk(tmp_path) as desk:
        await desk.serve(Agent())
        caller = await desk.caller(client="peer")
        responses = await collect(caller, send("fail", "message/stream"))
        assert [r.result for r in responses[:-1]] == ["first"]
        assert responses[-1].error is not None
        assert responses[-1].error.code == -32603
        assert "secret" not in responses[-1].error.message
        frames = await frames_of(await desk.jetstream(), CLIENT)
        assert json.loads(frames[-1])["kind"] == "complete"
