from __future__ import annotations

from pathlib import Path

import pytest

from tests.a2a.nats.durableagent import Agent, ask, collect, open_desk, send

pytestmark = pytest.mark.anyio


async def test_a_call_is_answered(tmp_path: Path):
    async with open_desk(tmp_path) as desk:
        agent = Agent()
        await desk.serve(agent)
        caller = await desk.caller()
        assert await ask(caller, "echo") == {"echo": "echo"}
        responses = await collect(caller, send("count 100", "message/stream"))
        assert [response.result for response in responses] == list(range(100))
