"""More calls than a server runs at a time: they wait in turn, and a stream that stands still waits apart."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from a2a.client import Client, ClientConfig

from a2a import types
from library.nats.agent import SUBJECT, TIMEOUT, Scene, connected, scene
from library.nats.rawpeer import compact, wire
from library.servers import open_server
from library.translation.agents import TASK, Scripted
from postroom_a2a import NatsA2AServer, core_interfaces, register
from postroom_a2a.binding.frames import Request, Response
from postroom_a2a.live import served
from postroom_a2a.live.calling import RETRY, CoreCaller, RetryingCaller, new_id
from postroom_a2a.retry import RetryPolicy
from postroom_a2a.rpc import Code
from postroom_a2a.sdk.errors import ServerBusyError

pytestmark = pytest.mark.anyio


class Quick(Scripted):
    """Answers in a millisecond; it counts how many calls it has at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.most = 0

    async def on_get_task(self, params: Any, context: Any) -> types.Task:
        return await self._work(TASK)

    async def on_message_send(self, params: Any, context: Any) -> types.Task:
        return await self._work(TASK)

    async def _work(self, answer: types.Task) -> types.Task:
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0.001)
        self.now -= 1
        return answer


@asynccontextmanager
async def client_of(
    folder: Path, handler: Scripted, retry: RetryPolicy = RETRY, **options: Any
) -> AsyncGenerator[tuple[Client, NatsA2AServer]]:
    async with (
        open_server(folder, jetstream=False) as url,
        connected(url) as serving,
        connected(url) as calling,
        NatsA2AServer(serving, subject=SUBJECT, handler=handler, **options) as server,
    ):
        card = types.AgentCard(supported_interfaces=core_interfaces(SUBJECT))
        factory = register(ClientConfig(streaming=False), calling, retry=retry)
        async with factory.create(card) as client:
            yield client, server


async def send(client: Client) -> str:
    message = types.Message(
        message_id="m", role=types.Role.ROLE_USER, parts=[types.Part(text="hi")]
    )
    request = types.SendMessageRequest(message=message)
    (event,) = [event async for event in client.send_message(request)]
    return event.task.id


# ── a queue ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("core-busy-told")
async def test_two_hundred_calls_at_once_of_a_quick_agent_are_all_answered(tmp_path: Path):
    handler = Quick()
    async with client_of(tmp_path, handler) as (client, server):
        assert await asyncio.gather(*(send(client) for _ in range(200))) == [TASK.id] * 200
        assert (server.statistics().refused, server.statistics().waiting) == (0, 0)
    assert handler.most <= 64


@pytest.mark.requirement("core-busy-told")
async def test_a_client_that_finds_a_server_busy_calls_again_until_it_is_answered(tmp_path: Path):
    async with client_of(tmp_path, Quick(), concurrency=2, waiting=4) as (client, server):
        assert await asyncio.gather(*(send(client) for _ in range(30))) == [TASK.id] * 30
        assert server.statistics().refused > 0


@pytest.mark.requirement("core-busy-told")
async def test_a_client_that_is_told_to_call_once_hears_at_once_that_a_server_is_busy(
    tmp_path: Path,
):
    once = RetryPolicy(attempts=1)
    async with client_of(tmp_path, Quick(), once, concurrency=1, max_wait=0) as (client, _):
        said = await asyncio.gather(*(send(client) for _ in range(9)), return_exceptions=True)
    assert Counter(type(each) for each in said).keys() == {str, ServerBusyError}


@pytest.mark.requirement("core-busy-told")
async def test_a_stream_that_finds_a_server_busy_is_asked_for_again(tmp_path: Path):
    async with scene(tmp_path, concurrency=1, max_wait=0) as s:
        held = asyncio.create_task(s.call("wait"))
        await s.agent.running.wait()
        events = RetryingCaller(s.caller).stream(s.ask("stream"), timeout=TIMEOUT)
        first = asyncio.ensure_future(anext(events))
        while not s.server.statistics().refused:
            await s.call("get")
        s.agent.release.set()
        assert (await first).result == {"event": 0}
        assert [event.result async for event in events] == [{"event": 1}, {"event": 2}]
        await held


@pytest.mark.requirement("core-busy-told")
async def test_a_call_waits_for_its_place_and_is_refused_when_that_takes_too_long(tmp_path: Path):
    async with scene(tmp_path, concurrency=1, max_wait=0.2) as s:
        running = asyncio.create_task(s.call("wait"))
        await s.agent.running.wait()
        refused = await s.call("wait")
        assert refused.error is not None
        assert refused.error.code == Code.SERVER_BUSY
        waiting = asyncio.create_task(s.call("echo", [1]))
        while not s.server.statistics().waiting:
            await s.call("get")
        s.agent.release.set()
        assert (await running).result == {"done": True}
        assert (await waiting).result == [1]


@pytest.mark.requirement("core-busy-told")
async def test_what_waits_when_a_server_ends_is_answered(tmp_path: Path):
    async with scene(tmp_path, concurrency=1, max_wait=TIMEOUT, drain=0.05) as s:
        calls = [asyncio.create_task(s.call("wait")) for _ in range(3)]
        while s.server.statistics().waiting < 2:
            await s.call("get")
        await s.server.drain()
        said = [await call for call in calls]
    assert ["the server ended" in each.error.message for each in said if each.error] == [True] * 3


# ── callers ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("core-busy-told")
async def test_a_caller_that_takes_all_it_can_leaves_places_and_turns_to_others(tmp_path: Path):
    async with scene(tmp_path, concurrency=4, waiting=8, max_wait=TIMEOUT) as s, another(s) as b:
        greedy = [asyncio.create_task(s.call("wait")) for _ in range(20)]
        refused, _ = await asyncio.wait(greedy, return_when=asyncio.FIRST_COMPLETED)
        told = [call.result().error for call in refused]
        assert all(error is not None and error.code == Code.SERVER_BUSY for error in told)
        assert (await ask(b, "echo", 1)).result == 1  # the fourth place
        held = asyncio.create_task(ask(b, "wait"))
        while s.server.statistics().running < 4:
            await s.call("get")
        waiting = asyncio.create_task(ask(b, "echo", 2))  # room to wait, too
        while s.server.statistics().waiting < 7:
            await s.call("get")
        s.agent.release.set()
        assert (await waiting).result == 2
        assert (await held).error is None
        done = [await call for call in greedy]
    assert sum(call.error is None for call in done) == 3 + 6


@asynccontextmanager
async def another(s: Scene) -> AsyncGenerator[CoreCaller]:
    """A caller on a connection of its own."""
    async with connected(s.url) as connection:
        yield CoreCaller(connection, SUBJECT)


async def ask(caller: CoreCaller, method: str, params: Any = None) -> Response:
    return await caller.call(Request(new_id(), method, params), timeout=TIMEOUT)


# ── stalled streams ────────────────────────────────────────────────────────────────────────


@asynccontextmanager
async def standing(s: Scene, count: int) -> AsyncGenerator[list[Any]]:
    """Streams of one peer that takes one frame and acknowledges none; what comes of each."""
    async with AsyncExitStack() as stack:
        peer = await stack.enter_async_context(wire(s.url))
        queues = []
        for number in range(count):
            _, queue = await peer.subscribe(f"_INBOX.still.{number}")
            call = {"jsonrpc": "2.0", "method": "stream", "params": {"count": 9}, "id": number}
            frame = compact({"protocol": "a2a-nats/1", "request": call})
            headers = b"NATS/1.0\r\nA2A-Stream: window=1;beat=0\r\n\r\n"
            peer.publish(SUBJECT, frame, f"_INBOX.still.{number}", headers)
            queues.append(queue)
        yield queues


@pytest.mark.requirement("core-busy-told")
async def test_streams_that_are_never_acknowledged_keep_no_one_out(tmp_path: Path):
    async with scene(tmp_path, drain=0.1) as s, standing(s, 64 + 48), another(s) as other:
        while s.server.statistics().stalled < 64:
            await s.call("get")
        for number in range(5):
            assert (await ask(other, "echo", number)).result == number
        assert [event.result async for event in s.stream("stream")] == [
            {"event": number} for number in range(3)
        ]


@pytest.mark.requirement("core-busy-told")
async def test_of_too_many_streams_that_stand_still_the_longest_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(served, "MAX_STALLED", 4)
    async with scene(tmp_path, drain=0.1) as s, standing(s, 6) as queues:
        for queue in queues[:2]:
            said = [await asyncio.wait_for(queue.get(), TIMEOUT) for _ in range(3)]
            assert b"too many streams are stalled" in said[1].payload
            assert b'"complete"' in said[2].payload
        assert s.server.statistics().stalled == 4
        assert (await s.call("echo", 1)).result == 1
