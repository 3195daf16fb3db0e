"""Durable calls among hostile messages, and while operations take away what they stand on."""

from __future__ import annotations

import asyncio
import json
import random
from datetime import datetime
from pathlib import Path

import pytest

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
from library.nats.test_faults_durable import CLIENT, frame
from postroom_a2a.binding.frames import (
    Request,
    encode_complete,
    encode_error,
    encode_request,
    encode_stream_frame,
)
from postroom_a2a.durable.streams import Streams
from postroom_a2a.errors import PostroomError, RequestTimeout, StreamFull
from postroom_a2a.nats.jetstream import JetStream, Stored
from postroom_a2a.nats.port import Frame
from postroom_a2a.rpc import RpcError

pytestmark = pytest.mark.anyio

HOSTILE_SUBJECTS = (
    "",
    "*",
    ">",
    "a2a.client.*.responses",
    "a2a.client.>",
    "a2a.>",
    "a2a.client.peer.responses.",
    "a2a.client..responses",
    "a2a.client.peer responses",
    "a2a.client.peer.responses\r\nPUB x 0\r\n",
    "a2a.client.peer\x00.responses",
    "A2A.client.peer.responses",
    "b2b.client.peer.responses",
    "a2a.client.peer.responses.more",
    "a2a.agent.echo.requests",
    "a2a.agent.echo.requests.control",
    "$KV.A2A_CLAIMS.A2A_REQUESTS.1.1",
    "$JS.API.STREAM.DELETE.A2A_REQUESTS",
    "$JS.API.STREAM.PURGE.A2A_RESPONSES",
    "$SYS.REQ.SERVER.PING",
    "_INBOX.x",
    "a2a.client." + "x" * 2000 + ".responses",
)


def mutations(rng: random.Random, count: int) -> list[bytes]:
    """Requests with bytes changed, cut off, or put in; none is the original."""
    found = []
    original = frame("hi", "a2a.client.fuzz.responses")
    while len(found) < count:
        data = bytearray(original)
        for _ in range(rng.randrange(1, 6)):
            at = rng.randrange(len(data))
            match rng.randrange(3):
                case 0:
                    data[at] = rng.randrange(256)
                case 1:
                    del data[at : at + rng.randrange(1, 30)]
                case 2:
                    data[at:at] = rng.randbytes(rng.randrange(1, 30))
            data = data or bytearray(b"x")
        found.append(bytes(data))
    return found


@pytest.mark.requirement("identity-sender-proved")
async def test_hostile_requests_are_told_or_dropped_and_the_server_goes_on(tmp_path: Path):
    async with open_desk(tmp_path) as desk:
        agent = Agent()
        server = await desk.serve(agent)
        caller, js = await desk.caller(), await desk.jetstream()
        watched = await desk.connect()
        strays = Strays()
        for pattern in ("b2b.>", "_INBOX.x", "$SYS.>", "A2A.>"):
            await watched.subscribe(pattern, cb=strays.append_subject)
        for each in HOSTILE_SUBJECTS:
            await js.publish(SUBJECT, frame("hostile", each))
            await js.publish(SUBJECT, json.dumps({"responseSubject": each}).encode())
        deep = b'{"responseSubject":"a2a.client.deep.responses","request":' + b"[" * 200_000
        for each in (b"", b"\x00", b"\x00\n", b"\xff" * 1000, b"[" * 200_000, deep):
            await js.publish(SUBJECT, each)
        for each in mutations(random.Random(7), 300):
            await js.publish(SUBJECT, each)
        biggest = frame("b" * 1_000_000, "a2a.client.big.responses")
        await js.publish(SUBJECT, biggest)
        assert await ask(caller, "still there") == {"echo": "still there"}
        await wait_for(lambda: server.statistics().held == 0)
        assert "hostile" not in agent.begun
        assert strays.subjects == []
        assert (await js.api("STREAM.INFO.A2A_REQUESTS"))["state"]["messages"] > 350


class Strays:
    """What came where nothing belongs."""

    def __init__(self) -> None:
        self.subjects: list[str] = []

    async def append_subject(self, message: Frame) -> None:
        self.subjects.append(message.subject)


@pytest.mark.requirement("binding-durable-begun-once")
async def test_answers_that_others_had_sent_to_a_client_harm_none_of_its_calls(tmp_path: Path):
    async with open_desk(tmp_path) as desk:
        await desk.serve(Agent())
        caller, js = await desk.caller(client="peer"), await desk.jetstream()
        for n in range(200):
            await js.publish(SUBJECT, frame(f"echo {n}", "a2a.client.peer.responses", n))
        answers = await asyncio.gather(*(ask(caller, f"mine {n}") for n in range(100)))
        assert answers == [{"echo": f"mine {n}"} for n in range(100)]
        assert caller.responses.counters.read == 100 + caller.responses.counters.unclaimed


@pytest.mark.requirement("binding-durable-begun-once")
async def test_a_forged_claim_keeps_a_request_from_being_begun_and_its_caller_is_told(
    tmp_path: Path,
):
    async with open_desk(tmp_path) as desk:
        agent, caller, js = Agent(), await desk.caller(), await desk.jetstream()
        await caller.responses.open(SUBJECT)
        await Streams().ensure_claims(js)
        forgeries = (b"", b"{}", b'{"owner":7}', b'{"owner":"a b"}', b'{"owner":"_INBOX.gone"}')
        for forged in forgeries:
            place = await place_of(js, await js.publish(SUBJECT, frame("claimed")))
            await js.publish(f"$KV.A2A_CLAIMS.{place}", forged)
        server = await desk.serve(agent, grace=0.1)
        await wait_for(lambda: server.statistics().lost == len(forgeries))
        await wait_for(lambda: server.statistics().held == 0)
        answers = [json.loads(each)["response"]["error"] for each in await frames_of(js, CLIENT)]
        assert ["not begun again" in each["message"] for each in answers] == [True] * 5
        assert agent.begun == []


@pytest.mark.requirement("binding-durable-begun-once")
@pytest.mark.parametrize("ended_with", ["error", "complete"])
async def test_a_stream_whose_server_was_gone_amid_its_end_has_one_end(
    tmp_path: Path, ended_with: str
):
    async with open_desk(tmp_path) as desk:
        agent, caller, js = Agent(), await desk.caller(), await desk.jetstream()
        await caller.responses.open(SUBJECT)
        await Streams().ensure_claims(js)
        call = Request(1, "message/stream", message("count 3"), response_subject=CLIENT)
        place = await place_of(js, await js.publish(SUBJECT, encode_request(call)))
        await js.publish(f"$KV.A2A_CLAIMS.{place}", b'{"owner":"_INBOX.gone"}')
        error = encode_stream_frame(
            encode_error(1, RpcError(-32603, "x"), binary=False), binary=False
        )
        ending = error if ended_with == "error" else encode_complete(1, binary=False)
        await js.publish(CLIENT, ending, headers={"Nats-Msg-Id": f"{place}:end"})
        server = await desk.serve(agent, grace=0.1)
        await wait_for(lambda: server.statistics().answered == 1)
        expected = (
            [ending] if ended_with == "complete" else [ending, encode_complete(1, binary=False)]
        )
        assert await frames_of(js, CLIENT) == expected
        assert agent.begun == []


async def place_of(js: JetStream, stored: Stored) -> str:
    """The name of a request's place, as claims and ids have it."""
    found = await js.api("STREAM.MSG.GET.A2A_REQUESTS", {"seq": stored.sequence})
    return f"A2A_REQUESTS.{stored.sequence}.{nanoseconds(found['message']['time'])}"


def nanoseconds(stamp: str) -> int:
    """Since the epoch, of a time as the API writes it."""
    whole, _, rest = stamp.removesuffix("Z").partition(".")
    seconds = int(datetime.fromisoformat(f"{whole}+00:00").timestamp())
    return seconds * 10**9 + int(rest.ljust(9, "0") or "0")


@pytest.mark.requirement("binding-durable-begun-once")
async def test_a_flood_of_requests_is_refused_at_the_bound_and_what_was_taken_is_answered(
    tmp_path: Path,
):
    async with open_desk(tmp_path) as desk:
        js = await desk.jetstream()
        streams = Streams(max_bytes=200_000)
        agent = Agent()
        await desk.serve(agent, streams=streams)
        caller = await desk.caller(streams=streams)
        told = await asyncio.gather(
            *(caller.call(send(f"echo {n} {'x' * 500}"), timeout=30) for n in range(600)),
            return_exceptions=True,
        )
        refused = [each for each in told if isinstance(each, BaseException)]
        assert refused
        assert {type(each) for each in refused} == {StreamFull}
        stored = (await js.api("STREAM.INFO.A2A_REQUESTS"))["state"]
        assert stored["messages"] == 600 - len(refused) == len(agent.begun)


@pytest.mark.requirement("binding-durable-begun-once")
async def test_answers_are_read_on_after_their_stream_was_purged_or_made_again(tmp_path: Path):
    async with open_desk(tmp_path) as desk:
        agent = Agent()
        await desk.serve(agent)
        caller, js = await desk.caller(), await desk.jetstream()
        for n in range(30):
            await ask(caller, f"echo {n}")
        held = asyncio.create_task(ask(caller, "hold", 30))
        await wait_for(lambda: agent.running)
        await js.api("STREAM.PURGE.A2A_RESPONSES", {})
        agent.release.set()
        assert await held == {"echo": "hold"}

        agent.release.clear()
        held = asyncio.create_task(ask(caller, "hold", 40))
        await wait_for(lambda: agent.running)
        await js.api("STREAM.DELETE.A2A_RESPONSES")
        await caller.responses.streams.ensure_responses(js, "a2a")
        for n in range(100):  # it counts further than before at once
            await js.publish("a2a.client.other.responses", str(n).encode())
        agent.release.set()
        assert await held == {"echo": "hold"}


@pytest.mark.requirement("binding-durable-begun-once")
async def test_calls_go_on_after_the_bucket_of_claims_was_deleted(tmp_path: Path):
    async with open_desk(tmp_path) as desk:
        agent = Agent()
        await desk.serve(agent)
        caller, js = await desk.caller(), await desk.jetstream()
        held = asyncio.create_task(ask(caller, "hold", 30))
        await wait_for(lambda: agent.running)
        await js.api("STREAM.DELETE.KV_A2A_CLAIMS")
        assert await ask(caller, "next") == {"echo": "next"}
        agent.release.set()
        assert await held == {"echo": "hold"}
        assert agent.begun == ["hold", "next"]


@pytest.mark.requirement("binding-durable-begun-once")
async def test_a_client_says_that_jetstream_is_off_and_goes_on_when_it_is_back(tmp_path: Path):
    async with open_desk(tmp_path) as desk:
        agent = Agent()
        await desk.serve(agent)
        caller = await desk.caller()
        assert await ask(caller, "before") == {"echo": "before"}
        await desk.server.restart_with(jetstream=False)
        with pytest.raises(PostroomError) as told:
            await caller.call(send("meanwhile"), timeout=3)
        assert not isinstance(told.value, RequestTimeout)
        await desk.server.restart_with(jetstream=True)
        assert await ask(caller, "after", 30) == {"echo": "after"}
        assert [e.result for e in await collect(caller, send("count 3", "message/stream"), 30)] == [
            0,
            1,
            2,
        ]
