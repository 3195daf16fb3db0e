"""Peers that mean harm, or do not know better: none gets more of a server or a client than its own error."""

from __future__ import annotations

import asyncio
import json
import math
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

import pytest
from a2a.client.client import ClientCallContext
from a2a.types import GetTaskRequest
from hypothesis import given
from hypothesis import strategies as st
from nats.aio.msg import Msg

import postroom_a2a as a2a
from library.nats.agent import SUBJECT, TIMEOUT, PlainAgent, connected, scene
from library.nats.rawpeer import wire
from library.servers import open_server
from postroom_a2a.binding import frames
from postroom_a2a.binding.frames import Request
from postroom_a2a.errors import BusDisconnected, InvalidInput, ProtocolViolation
from postroom_a2a.live.calling import CoreCaller, new_id
from postroom_a2a.live.serving import CoreServer
from postroom_a2a.nats.mailbox import Mailbox
from postroom_a2a.nats.port import settle
from postroom_a2a.rpc import Code, RpcError
from postroom_a2a.sdk.transport import NatsA2ATransport

pytestmark = pytest.mark.anyio

ECHO = b'{"jsonrpc":"2.0","method":"echo","params":1,"id":1}'
STREAM = b'{"jsonrpc":"2.0","method":"stream","id":1}'


# ── subjects that a peer names ──────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("identity-sender-proved")
@pytest.mark.parametrize("payload", [ECHO, STREAM, b"nonsense"])
@pytest.mark.parametrize("reply", ["$KV.cards.a2a.agents.victim", "$JS.API.INFO", "a.*", "a.>"])
async def test_a_server_publishes_to_no_reply_subject_of_the_nats_server_s_own(
    tmp_path: Path, reply: str, payload: bytes
):
    async with scene(tmp_path) as s, wire(s.url) as peer:
        peer.publish(SUBJECT, payload, reply)
        await peer.flush()
        assert (await s.call("echo", 1)).result == 1
        assert [call.method for call in s.agent.calls] == ["echo"]
        assert (s.server.statistics().ignored, s.server.statistics().answered) == (1, 1)


async def test_a_server_does_not_answer_itself(tmp_path: Path):
    async with scene(tmp_path) as s, wire(s.url) as peer:
        peer.publish(SUBJECT, STREAM, SUBJECT)
        await peer.flush()
        assert (await s.call("echo", 1)).result == 1
        assert s.server.statistics().ignored == 1


@pytest.mark.requirement("identity-sender-proved")
async def test_a_client_acknowledges_to_no_subject_of_the_nats_server_s_own(tmp_path: Path):
    deputy = "$KV.cards.a2a.agents.victim"
    async with (
        open_server(tmp_path, jetstream=False) as url,
        connected(url) as calling,
        connected(url) as serving,
    ):
        said: list[str] = []

        async def answer(message: Msg) -> None:
            call_id = json.loads(message.data)["request"]["id"]
            for sequence in range(1, 41):
                response = frames.encode_result(call_id, b"1")
                frame = frames.encode_stream_frame(response)
                headers = {"A2A-Sequence": str(sequence)}
                await serving.publish(message.reply, frame, deputy, headers)

        async def watch(message: Msg) -> None:
            said.append(message.subject)

        await serving.subscribe(SUBJECT, cb=answer)
        await serving.subscribe("$KV.>", cb=watch)
        await settle(serving)
        caller = CoreCaller(calling, SUBJECT)
        async with aclosing(caller.stream(Request(new_id(), "stream"), timeout=TIMEOUT)) as events:
            for _ in range(40):
                await anext(events)
        await settle(calling)
        await settle(serving)
    assert said == []


@pytest.mark.requirement("identity-sender-proved")
async def test_who_saw_one_reply_subject_cannot_tell_the_next(tmp_path: Path):
    async with open_server(tmp_path, jetstream=False) as url, connected(url) as client:
        mailbox = Mailbox(client)
        tokens = [mailbox.token(print).removeprefix(f"{mailbox.prefix}.") for _ in range(3)]
    assert len({token[:8] for token in tokens}) == 3
    assert len({token[-8:] for token in tokens}) == 3


# ── frames ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("call_id", [2**53 + 1, -(2**63), 2**64 - 1, 10**400])
async def test_a_great_id_comes_back_to_the_last_digit(tmp_path: Path, call_id: int):
    async with scene(tmp_path) as s:
        for method in ("echo", "refuse", "nothing"):
            request = b'{"jsonrpc":"2.0","method":"%s","params":1,"id":%d}'
            payload = request % (method.encode(), call_id)
            answer = await s.calling.request(SUBJECT, payload, timeout=TIMEOUT)
            assert json.loads(answer.data)["id"] == call_id


@pytest.mark.parametrize("deadline", ["1" + "0" * 400, "1e300", "true", "-5", '"x"', "[]"])
async def test_a_deadline_that_is_none_is_not_heeded(tmp_path: Path, deadline: str):
    payload = b'\x00{"id":1,"method":"echo","deadline":%s}\nx' % deadline.encode()
    async with scene(tmp_path) as s:
        answer = await s.calling.request(SUBJECT, payload, timeout=TIMEOUT)
    assert answer.data == b'\x00{"id":1}\nx'


@pytest.mark.parametrize(
    "headers",
    [
        b"NATS/1.0",
        b"x",
        b"NATS/1.0 \xff\xff\xff\r\n\r\n",
        b"NATS/1.0 503 \xff\r\n\r\n",
        b"NATS/1.0\r\nA2A-Stream: \xff\r\n\r\n",
        b"NATS/1.0\r\nA2A-Deadline: 1e400\r\nA2A-Stream: window=nan;beat=inf\r\n\r\n",
        b"NATS/1.0\r\n" + b"A2A-Stream: window=9e999;beat\r\n" * 1000 + b"\r\n",
    ],
    ids=range(7),
)
async def test_headers_that_are_none_do_not_make_a_server_or_a_client_deaf(
    tmp_path: Path, headers: bytes
):
    async with scene(tmp_path) as s, wire(s.url) as peer:
        assert (await s.call("echo", 1)).result == 1
        for subject in (SUBJECT, f"{s.caller._mailbox.prefix}.x"):
            peer.publish(subject, ECHO, "_INBOX.peer.x", headers)
        await peer.flush()
        assert (await s.call("echo", 2)).result == 2


NAMES = st.sampled_from(
    (
        *("protocol", "request", "jsonrpc", "method", "params", "id", "serviceParameters"),
        *("responseSubject", "deadline", "kind", "response", "error", "code", "message", "data"),
    )
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES | st.text(), inner),
    max_leaves=12,
)
FRAMES = st.fixed_dictionaries(
    {},
    optional={
        "protocol": st.just(frames.PROTOCOL) | VALUES,
        "jsonrpc": st.just("2.0") | VALUES,
        "kind": st.sampled_from(["response", "complete", "transport-error"]) | VALUES,
        "request": st.fixed_dictionaries({"jsonrpc": st.just("2.0"), "method": VALUES}) | VALUES,
        "response": st.fixed_dictionaries({"id": VALUES, "error": VALUES}) | VALUES,
        "method": st.text() | VALUES,
        "id": VALUES,
        "deadline": st.integers() | VALUES,
        "error": VALUES,
        "message": VALUES,
        "serviceParameters": VALUES,
    },
)


@given(FRAMES, st.booleans(), st.binary(max_size=4))
def test_any_frame_is_read_or_refused(frame: dict[str, Any], binary: bool, tail: bytes):
    payload = json.dumps(frame).encode()
    payload = b"\x00" + payload + b"\n" + tail if binary else payload + tail
    try:
        request = frames.decode_request(payload)
        call_id, error = request.id, RpcError(Code.METHOD_NOT_FOUND, request.method)
    except frames.BadRequest as bad:
        call_id, error = bad.id, bad.error
    answered = frames.decode_response(frames.encode_error(call_id, error, binary=binary))
    assert (answered.id, answered.error is None) == (call_id, False)
    with suppress(ProtocolViolation):
        frames.decode_response(payload)


# ── life ────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_frame_whose_admission_fails_is_ignored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    asked: list[object] = []

    def admit(frame: object) -> str:
        asked.append(frame)
        if len(asked) == 1:
            raise KeyError("nothing")
        return ""

    async with scene(tmp_path, admit=admit) as s, wire(s.url) as peer:
        peer.publish(SUBJECT, ECHO, "_INBOX.peer.x")
        await peer.flush()
        assert (await s.call("echo", 1)).result == 1
        assert s.server.statistics().ignored == 1
    assert "admission" in caplog.text


async def test_a_call_and_a_stream_over_a_closed_connection_fail_at_once(tmp_path: Path):
    async with open_server(tmp_path, jetstream=False) as url, connected(url) as client:
        caller = CoreCaller(client, SUBJECT)
        await client.close()
        with pytest.raises(BusDisconnected):
            await caller.call(Request(new_id(), "echo"), timeout=TIMEOUT)
        with pytest.raises(BusDisconnected):
            await anext(caller.stream(Request(new_id(), "stream"), timeout=TIMEOUT))


@pytest.mark.parametrize("seconds", [math.nan, -1.0])
async def test_a_timeout_that_is_none_is_refused_before_anything_is_sent(
    tmp_path: Path, seconds: float
):
    async with scene(tmp_path) as s:
        transport = NatsA2ATransport(s.caller)
        with pytest.raises(InvalidInput):
            await transport.get_task(
                GetTaskRequest(id="t"), context=ClientCallContext(timeout=seconds)
            )
        assert s.agent.calls == []


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("seconds", [math.inf, 1e300])
async def test_a_timeout_without_end_states_no_deadline(
    tmp_path: Path, seconds: float, binary: bool
):
    async with scene(tmp_path) as s:
        transport = NatsA2ATransport(s.caller, binary=binary)
        with pytest.raises(Exception, match="Method not found"):
            await transport.get_task(
                GetTaskRequest(id="t"), context=ClientCallContext(timeout=seconds)
            )
        assert s.agent.calls[0].deadline == 0


async def test_a_server_is_entered_once(tmp_path: Path):
    async with scene(tmp_path) as s:
        with pytest.raises(InvalidInput):
            await s.server.__aenter__()
        assert (await s.call("echo", 1)).result == 1
        await s.server.drain()
        await s.server.drain()


async def test_a_server_that_cannot_begin_leaves_nothing_subscribed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with (
        open_server(tmp_path, jetstream=False) as url,
        await a2a.connect(url) as connection,
    ):

        async def interrupted(*_: object) -> None:
            raise asyncio.CancelledError

        monkeypatch.setattr(connection, "confirm", interrupted)
        with pytest.raises(asyncio.CancelledError):
            await CoreServer(connection, SUBJECT, PlainAgent()).__aenter__()
        assert connection._routes == {}


# ── nothing is left ─────────────────────────────────────────────────────────────────────────────────


async def test_calls_and_streams_that_end_in_any_way_leave_nothing_behind(tmp_path: Path):
    async with scene(tmp_path, concurrency=32) as s:
        await s.call("echo", 1)
        before = asyncio.all_tasks()
        ways = ("echo", "raise", "refuse", "nothing")
        for _ in range(50):
            await asyncio.gather(*(s.call(way, 1) for way in ways))
            await asyncio.gather(
                *(_read(s, way) for way in ("stream", "stream-refuse", "stream-raise")),
                *(_leave(s, way) for way in ("stream", "stream-wait", "stream-wait")),
            )
        async with asyncio.timeout(TIMEOUT):
            while s.server.statistics().running:
                await s.call("get")
        await s.call("get")
        assert s.caller._mailbox._waiting == {}
        assert s.server._mailbox._waiting == {}
        assert asyncio.all_tasks() == before


async def _read(s: Any, method: str) -> None:
    async for _ in s.stream(method):
        pass


async def _leave(s: Any, method: str) -> None:
    async with aclosing(s.stream(method)) as events:
        await anext(events)
