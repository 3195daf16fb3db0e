"""Processes that end without a word: the server of an agent, nats-server, both."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from library.nats import durableworker
from library.nats.durableagent import Desk, ask, collect, frames_of, open_desk, send
from library.nats.workers import working

pytestmark = pytest.mark.anyio


@pytest.mark.requirement("binding-durable-begun-once")
@pytest.mark.parametrize("bus", ["bus-stays", "bus-killed"])
async def test_a_request_whose_server_was_killed_is_begun_once_and_answered_once(
    tmp_path: Path, bus: str
):
    journal = tmp_path / "journal"
    async with open_desk(tmp_path / "nats") as desk:
        caller = await desk.caller(client="peer")
        requests = [send("work", method) for method in ("message/send", "message/stream")]
        async with working(durableworker, desk.server.url, journal) as worker:
            answers = [asyncio.create_task(collect(caller, each, 40)) for each in requests]
            begun = {line.split()[1] for line in await worker.begun(2)}
            await worker.kill()
        if bus == "bus-killed":
            await desk.server.restart(kill=True)
        async with working(durableworker, desk.server.url, journal) as worker:
            lost = set()
            for responses in await asyncio.gather(*answers):
                assert responses[-1].error is not None
                assert "not begun again" in responses[-1].error.message
                lost.add(responses[-1].error.data[0]["metadata"]["taskId"])
            assert lost == begun
            assert await ask(caller, "quick", 20) == "quick"
            lines = [line.split()[0] for line in await worker.begun(3)]
            assert lines == ["work", "work", "quick"]
        for request in requests:
            assert await endings(desk, request.id) == 1


@pytest.mark.requirement("binding-durable-begun-once")
@pytest.mark.slow
async def test_what_was_answered_before_both_were_killed_is_neither_begun_nor_answered_again(
    tmp_path: Path,
):
    journal = tmp_path / "journal"
    async with open_desk(tmp_path / "nats") as desk:
        caller = await desk.caller(client="peer")
        requests = [send(f"quick {n}") for n in range(20)]
        async with working(durableworker, desk.server.url, journal) as worker:
            await asyncio.gather(*(caller.call(request, timeout=20) for request in requests))
            await worker.kill()
        await desk.server.restart(kill=True)  # it forgets the acknowledgements of the last moment
        async with working(durableworker, desk.server.url, journal) as worker:
            assert await ask(caller, "quick after", 20) == "quick after"
            js = await desk.jetstream()
            async with asyncio.timeout(20):
                while True:
                    info = await js.api("CONSUMER.INFO.A2A_REQUESTS.a2a_agent_echo_requests_server")
                    if not info["num_ack_pending"] and not info["num_pending"]:
                        break
                    await asyncio.sleep(0.05)
            assert len(await worker.begun(21)) == 21
        for request in requests:
            assert await endings(desk, request.id) == 1


@pytest.mark.requirement("binding-durable-begun-once")
@pytest.mark.slow
async def test_what_runs_while_nats_server_is_killed_is_begun_once_and_answered(tmp_path: Path):
    journal = tmp_path / "journal"
    async with open_desk(tmp_path / "nats") as desk:
        caller = await desk.caller(client="peer")
        async with working(durableworker, desk.server.url, journal) as worker:
            calls = [asyncio.create_task(ask(caller, f"quick {n}", 40)) for n in range(300)]
            await worker.begun(20)
            await desk.server.restart(kill=True)
            await asyncio.gather(*calls)
            lines = await worker.begun(300)
        assert len(lines) == len(set(lines)) == 300


@pytest.mark.requirement("binding-durable-begun-once")
async def test_what_a_killed_replica_held_ends_also_when_the_durable_is_made_again_by_another(
    tmp_path: Path,
):
    one, other = tmp_path / "one", tmp_path / "other"
    async with open_desk(tmp_path / "nats") as desk:
        caller = await desk.caller(client="peer")
        async with working(durableworker, desk.server.url, one) as holder:
            answer = asyncio.create_task(caller.call(send("work"), timeout=40))
            await holder.begun(1)
            async with working(durableworker, desk.server.url, other) as replica:
                answers = [await ask(caller, f"quick {n}", 20) for n in range(8)]
                assert answers == [f"quick {n}" for n in range(8)]
                await holder.kill()
                js = await desk.jetstream()
                await js.api("CONSUMER.DELETE.A2A_REQUESTS.a2a_agent_echo_requests_server")
                response = await answer
                assert response.error is not None
                assert "not begun again" in response.error.message
                assert await ask(caller, "quick", 20) == "quick"
                lines = [line.split()[0] for line in await replica.begun(1)]
                assert "work" not in lines


@pytest.mark.requirement("core-busy-told")
async def test_a_server_that_ends_answers_what_it_cannot_finish(tmp_path: Path):
    journal = tmp_path / "journal"
    async with open_desk(tmp_path / "nats") as desk:
        caller = await desk.caller()
        async with working(durableworker, desk.server.url, journal) as worker:
            answer = asyncio.create_task(caller.call(send("work"), timeout=20))
            await worker.begun(1)
            ended = asyncio.create_task(worker.end())
            response = await answer
            assert response.error is not None
            assert "not begun again" in response.error.message
            assert await ended == 0


async def endings(desk: Desk, call_id: object) -> int:
    """Frames that end the call, as they are stored."""
    frames = map(json.loads, await frames_of(await desk.jetstream(), "a2a.client.peer.responses"))
    responses = [f["response"] for f in frames if f["kind"] == "response"]
    return sum(
        "error" in r or not isinstance(r["result"], int) for r in responses if r["id"] == call_id
    )
