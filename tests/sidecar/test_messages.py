from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from postroom.a2a.messages import text_of
from postroom.protocol.presence import WorkerState
from tests.sidecar.house import ECHO, House, house

pytestmark = pytest.mark.anyio


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[House]:
    async with house(tmp_path) as found:
        yield found


async def test_a_message_is_handed_to_the_agent_and_its_reply_reaches_the_sender(home: House):
    async with home.sidecar(ECHO):
        asked = await home.write("hello", expects_reply=True)
        (answer,) = await home.tap.until(home.to_alice)

        assert text_of(answer.message) == "echo hello"
        assert answer.reply_to == asked
        assert answer.to == home.alice.uid
        await home.seen(asked)
        await home.all_acked()
