"""A server and a caller over core NATS: limits, deadlines, endings, and what is no call at all."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import time
import tracemalloc
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from library.nats.agent import SUBJECT, TIMEOUT, PlainAgent, connected, scene
from library.servers import open_server
from postroom_a2a.binding.frames import Flow
from postroom_a2a.errors import MessageTooLarge, NoResponders, RequestTimeout, StreamBroken
from postroom_a2a.live.calling import CoreCaller
from postroom_a2a.live.serving import CoreServer
from postroom_a2a.nats.mailbox import Mailbox
from postroom_a2a.nats.port import Frame, settle
from postroom_a2a.rpc import Code

pytestmark = [pytest.mark.anyio, pytest.mark.both_connections]


def code_of(payload: bytes) -> int:
    return json.loads(payload)["error"]["code"]


async def test_calls_and_streams_work_with_jetstream_switched_off(tmp_path: Path):
    async with scene(tmp_path) as s:
        answer = await s.call("echo", {"a": [1, "é😀"]})
        events = [event.result async for event in s.stream("stream")]
    assert answer.result == {"a": [1, "é😀"]}
    assert events == [{"event": 0}, {"event": 1}, {"event": 2}]


async def test_binary_frames_are_answered_in_kind(tmp_path: Path):
    async with scene(tmp_path) as s:
        answer = await s.call("echo", b"\x0a\x01x\n", binary=True)
        request = s.ask("stream", b"", binary=True)
        events = [event async for event in s.caller.stream(request, timeout=TIMEOUT)]
        refused = await s.call("refuse", b"", binary=True)
    assert (answer.binary, answer.result) == (True, b"\x0a\x01x\n")
    assert [(event.binary, event.result[-1]) for event in events] == [(True, n) for n in range(3)]
    assert refused.binary
    assert refused.error is not None
    assert refused.error.code == Code.TASK_NOT_FOUND


async def test_an_exception_of_the_agent_is_an_internal_error_without_its_text(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    async with scene(tmp_path) as s:
        answer = await s.call("raise")
        last = [event async for event in s.stream("stream-raise")][-1]
    for said in (answer, last):
        assert said.error is not None
        assert (said.error.code, said.error.message) == (Code.INTERNAL_ERROR, "Internal error")
    assert "a secret of the agent" in caplog.text


@pytest.mark.parametrize(
    "payload, answer",
    [
        (
            b'{"jsonrpc":"2.0","method":"echo","params":[1],"id":7}',
            b'{"jsonrpc":"2.0","id":7,"result":[1]}',
        ),
        (
            b'{"protocol":"a2a-nats/1","request":{"jsonrpc":"2.0","method":"echo","params":[1]}}',
            b'{"jsonrpc":"2.0","id":null,"result":[1]}',
        ),
        (
            (
                b'{"protocol":"a2a-nats/1","request":{"jsonrpc":"2.0","method":"echo","params":{},"id":"x",'
                b'"y":1},"responseSubject":"a2a.client.c.responses","z":2}'
            ),
            b'{"jsonrpc":"2.0","id":"x","result":{}}',
        ),
    ],
    ids=["bare", "notification", "response subject and unknown members"],
)
async def test_what_the_wire_allows_is_answered(tmp_path: Path, payload: bytes, answer: bytes):
    async with scene(tmp_path) as s:
        assert (await s.calling.request(SUBJECT, payload, timeout=TIMEOUT)).data == answer


@pytest.mark.parametrize(
    "payload, code, call_id",
    [
        (b"", -32700, None),
        (b"nonsense", -32700, None),
        (b"[]", -32600, None),
        (
            b'{"protocol":"a2a-nats/2","request":{"jsonrpc":"2.0","method":"echo","id":3}}',
            -32600,
            3,
        ),
        (b'{"protocol":"a2a-nats/1","request":{"jsonrpc":"2.0","id":"q"}}', -32600, "q"),
        (b'{"jsonrpc":"2.0","method":"nothing","id":4}', -32601, 4),
    ],
)
async def test_a_malformed_frame_is_answered_with_its_id_where_that_can_be_read(
    tmp_path: Path, payload: bytes, code: int, call_id: object
):
    async with scene(tmp_path) as s:
        said = json.loads((await s.calling.request(SUBJECT, payload, timeout=TIMEOUT)).data)
    assert (said["error"]["code"], said["id"]) == (code, call_id)


async def test_a_call_without_a_reply_subject_is_counted_and_not_performed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    async with scene(tmp_path) as s:
        with caplog.at_level(logging.WARNING, "postroom"):
            for _ in range(5):
                await s.calling.publish(SUBJECT, b'{"jsonrpc":"2.0","method":"stream","id":1}')
            await settle(s.calling)  # another connection than that of the call
            await s.call("get")
        ignored = s.server.statistics().ignored
    assert ignored == 5
    assert [call.method for call in s.agent.calls] == ["get"]
    assert caplog.text.count("without a usable reply subject") == 3  # at 1, 2 and 4


async def test_a_frame_that_is_not_admitted_is_ignored_and_who_is_admitted_is_told(tmp_path: Path):
    def admit(frame: Frame) -> str | None:
        return "bob" if frame.headers else None

    async with scene(tmp_path, admit=admit) as s:
        with pytest.raises(RequestTimeout):
            await s.caller.call(s.ask("echo"), timeout=0.05)
        await s.calling.request(
            SUBJECT, b'{"jsonrpc":"2.0","method":"get","id":1}', timeout=TIMEOUT, headers={"a": "b"}
        )
    assert [call.caller for call in s.agent.calls] == ["bob"]


# ── limits ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("core-busy-told")
async def test_one_call_too_many_is_refused_at_once_while_reads_and_cancel_get_through(
    tmp_path: Path,
):
    async with scene(tmp_path, concurrency=2, spare=1, max_wait=0) as s:
        waiting = [asyncio.create_task(s.call("wait")) for _ in range(2)]
        while len(s.agent.calls) < 2:
            await s.call("get") if s.agent.running.is_set() else await s.agent.running.wait()
        s.agent.calls.clear()
        busy = await s.call("wait")
        streamed = [event async for event in s.stream("stream")]
        cancelled = await s.call("cancel")
        s.agent.release.set()
        done = [(await task).result for task in waiting]
        refused = s.server.statistics().refused
    assert [event.error.code for event in (busy, *streamed) if event.error] == [
        Code.SERVER_BUSY
    ] * 2
    assert cancelled.result == {"got": True}
    assert done == [{"done": True}] * 2
    assert [call.method for call in s.agent.calls] == ["cancel"]
    assert refused == 2


@pytest.mark.requirement("core-busy-told")
async def test_a_call_whose_deadline_has_passed_is_not_begun(tmp_path: Path):
    async with scene(tmp_path) as s:
        for binary in (False, True):
            late = await s.call(
                "echo", b"" if binary else None, binary=binary, deadline=time.time() - 5
            )
            assert late.error is not None
            assert "deadline exceeded" in late.error.message
    assert s.agent.calls == []


@pytest.mark.requirement("core-busy-told")
@pytest.mark.parametrize("method", ["wait", "stream-wait"])
async def test_a_call_that_runs_past_its_deadline_is_cancelled_and_answered(
    tmp_path: Path, method: str
):
    async with scene(tmp_path) as s:
        request = s.ask(method, deadline=time.time() + 0.2)
        if method == "wait":
            said = await s.caller.call(request, timeout=TIMEOUT)
        else:
            said = [event async for event in s.caller.stream(request, timeout=TIMEOUT)][-1]
    assert said.error is not None
    assert "deadline exceeded" in said.error.message
    assert s.agent.cancelled == [method]


@pytest.mark.parametrize("call_id", ["a", "10", 10, None, 2**53, "é😀"])
async def test_an_id_comes_back_with_its_type(tmp_path: Path, call_id: str | int | None):
    async with scene(tmp_path) as s:
        request = s.ask("echo", {})
        request.id = call_id
        assert (await s.caller.call(request, timeout=TIMEOUT)).id == call_id


# ── streams ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("core-busy-told")
async def test_an_agent_is_not_asked_for_more_than_a_slow_reader_takes(tmp_path: Path):
    async with (
        scene(tmp_path, flow=Flow(window=8, beat=10)) as s,
        aclosing(s.stream("stream", {"count": 500})) as events,
    ):
        await anext(events)
        # A round trip through the same server: whatever it could send by then, it has sent.
        for _ in range(20):
            await s.call("get")
        assert s.agent.yielded <= 10
        assert len([event async for event in events]) == 499


@pytest.mark.requirement("core-busy-told")
async def test_a_reader_that_never_acknowledges_loses_its_stream_with_an_error(tmp_path: Path):
    async with scene(tmp_path, stall=0.1) as s:
        mailbox, frames = Mailbox(s.calling), []
        await mailbox.open()
        ended = asyncio.Event()

        def arrived(frame: Frame) -> None:
            frames.append(frame)
            if b'"complete"' in frame.data:
                ended.set()

        payload = b'{"jsonrpc":"2.0","method":"stream","params":{"count":99},"id":1}'
        await mailbox.send(
            SUBJECT,
            payload,
            reply=mailbox.token(arrived),
            headers={"A2A-Stream": "window=4;beat=0"},
        )
        await asyncio.wait_for(ended.wait(), TIMEOUT)
        await asyncio.wait_for(s.agent.closed.wait(), TIMEOUT)
    assert len(frames) == 6
    assert b"acknowledged nothing" in frames[4].data
    assert [frame.headers["A2A-Sequence"] for frame in frames] == list("123456")


@pytest.mark.requirement("core-busy-told")
async def test_a_standing_reader_of_ten_thousand_frames_costs_the_server_no_memory(tmp_path: Path):
    async with (
        scene(tmp_path, flow=Flow(window=32, beat=10)) as s,
        aclosing(s.stream("stream", {"count": 10_000})) as events,
    ):
        for _ in range(100):
            await anext(events)
        gc.collect()
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            for _ in range(5000):
                await anext(events)
            for _ in range(20):  # now it stands, and the server works on
                await s.call("get")
            gc.collect()
            grown = tracemalloc.get_traced_memory()[0] - before
        finally:
            tracemalloc.stop()
        rest = len([event async for event in events])
    assert rest == 10_000 - 5100
    assert grown < 256 * 1024


@pytest.mark.requirement("core-busy-told")
async def test_a_reader_that_stops_early_ends_the_stream_at_the_agent(tmp_path: Path):
    async with scene(tmp_path) as s:
        async with aclosing(s.stream("stream-wait")) as events:
            await anext(events)
        await asyncio.wait_for(s.agent.closed.wait(), TIMEOUT)
        await s.call("get")
        assert s.server.statistics().running == 0


async def test_a_reader_that_is_cancelled_ends_the_stream_at_the_agent(tmp_path: Path):
    async with scene(tmp_path) as s:

        async def read():
            async for _ in s.stream("stream-wait"):
                pass

        reader = asyncio.create_task(read())
        await asyncio.wait_for(s.agent.running.wait(), TIMEOUT)
        reader.cancel()
        await asyncio.wait_for(s.agent.closed.wait(), TIMEOUT)
        with pytest.raises(asyncio.CancelledError):
            await reader


async def test_a_server_that_falls_silent_breaks_the_stream(tmp_path: Path):
    async with scene(tmp_path, idle=0.1) as s:
        with pytest.raises(StreamBroken, match="nothing came"):
            _ = [event async for event in s.stream("stream-wait", {"count": 1})]


async def test_a_silent_agent_is_told_from_a_dead_server_by_beats(tmp_path: Path):
    async with scene(tmp_path, flow=Flow(window=32, beat=0.5), idle=0.9) as s:

        async def read():
            return [event.result async for event in s.stream("stream-wait", {"count": 1})]

        reader = asyncio.create_task(read())
        beats = await s.calling.subscribe("_INBOX.>")
        async with asyncio.timeout(TIMEOUT):
            seen = 0
            async for message in beats.messages:
                seen += "A2A-Beat" in (message.headers or {})
                if seen == 4:
                    break
        s.agent.release.set()
        assert await reader == [{"event": 0}]


# ── sizes ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("core-sdk-client")
async def test_a_request_over_the_limit_is_refused_before_it_is_sent(tmp_path: Path):
    async with scene(tmp_path) as s:
        limit = s.calling.max_payload
        with pytest.raises(MessageTooLarge, match=str(limit)):
            await s.call("echo", "x" * limit)
        with pytest.raises(MessageTooLarge, match=str(limit)):
            _ = [event async for event in s.stream("stream", {"text": "x" * limit})]
        assert (await s.call("echo", "x" * (limit - 400))).error is None


@pytest.mark.requirement("core-sdk-client")
async def test_an_answer_over_the_limit_becomes_an_error_that_names_the_limit(tmp_path: Path):
    async with scene(tmp_path) as s:
        limit = s.serving.max_payload
        answer = await s.call("large", {"bytes": limit})
        events = [event async for event in s.stream("stream-large", {"bytes": limit, "count": 1})]
    for said in (answer, events[-1]):
        assert said.error is not None
        assert str(limit) in said.error.message
    assert len(events) == 2


# ── endings ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("core-busy-told")
async def test_a_server_that_ends_finishes_what_runs_and_takes_no_more(tmp_path: Path):
    async with scene(tmp_path, drain=TIMEOUT) as s:
        call = asyncio.create_task(s.call("wait"))
        await s.agent.running.wait()
        ending = asyncio.create_task(s.server.drain())
        while True:
            try:
                await s.call("get")
            except NoResponders:
                break
        s.agent.release.set()
        assert (await call).result == {"done": True}
        await ending


@pytest.mark.requirement("core-busy-told")
@pytest.mark.parametrize("method", ["wait", "stubborn", "stream-wait"])
async def test_what_does_not_finish_in_time_is_cancelled_and_answered_with_an_error(
    tmp_path: Path, method: str
):
    async with scene(tmp_path, drain=0.05) as s:

        async def call():
            if method.startswith("stream"):
                return [event async for event in s.stream(method)][-1]
            return await s.call(method)

        calling = asyncio.create_task(call())
        await s.agent.running.wait()
        await s.server.drain()
        said = await calling
    assert said.error is not None
    assert "the server ended" in said.error.message
    assert s.agent.cancelled == [method]


async def test_a_call_that_has_only_just_come_is_answered_when_the_server_ends(tmp_path: Path):
    async with scene(tmp_path, drain=0.0) as s:
        calls = [asyncio.create_task(s.call("wait")) for _ in range(5)]
        await s.agent.running.wait()
        await s.server.drain()
        said = [await call for call in calls]
    assert all(answer.error is not None for answer in said)


@pytest.mark.requirement("core-never-deaf")
async def test_server_and_caller_go_on_after_a_restart_of_nats_server(tmp_path: Path):
    agent = PlainAgent()
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(AsyncExitStack())
        url = await first.enter_async_context(open_server(tmp_path / "1", jetstream=False))
        # Not for ever: nats-py can miss its own end while it looks for a server that has gone.
        options = {"reconnect_time_wait": 0.02, "max_reconnect_attempts": 500}
        back = [asyncio.Event(), asyncio.Event()]

        def on(event: asyncio.Event):
            async def reconnected() -> None:
                event.set()

            return reconnected

        serving = await stack.enter_async_context(
            connected(url, reconnected_cb=on(back[0]), **options)
        )
        calling = await stack.enter_async_context(
            connected(url, reconnected_cb=on(back[1]), **options)
        )
        server = await stack.enter_async_context(CoreServer(serving, SUBJECT, agent))
        caller = CoreCaller(calling, SUBJECT)
        s = PlainAgentCalls(caller)
        assert await s.echo(1) == 1
        await first.aclose()
        port = urlsplit(url).port or 0
        await stack.enter_async_context(open_server(tmp_path / "2", jetstream=False, port=port))
        async with asyncio.timeout(20):
            for event in back:
                await event.wait()
            await server._connection.ready(20)
            await (
                server._connection.flush()
            )  # the server has read the subscription, which goes out again
        assert await s.echo(2) == 2
        assert server.statistics().answered == 2


class PlainAgentCalls:
    """Calls of a caller that has no scene."""

    def __init__(self, caller: CoreCaller) -> None:
        self._caller = caller
        self._count = 0

    async def echo(self, value: object) -> object:
        from postroom_a2a.binding.frames import Request

        self._count += 1
        answer = await self._caller.call(Request(self._count, "echo", value), timeout=TIMEOUT)
        return answer.result
