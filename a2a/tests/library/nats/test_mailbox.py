"""The tokens of a mailbox, and how much of a stream may lie unread; no bus."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from postroom_a2a.errors import StreamBroken
from postroom_a2a.nats.mailbox import FrameQueue

pytestmark = pytest.mark.anyio


def frame(size: int) -> Any:
    return SimpleNamespace(data=bytes(size))


async def test_a_stream_ends_when_more_bytes_lie_unread_than_its_reader_takes():
    queue = FrameQueue(size_limit=100)
    for size in (60, 40):
        queue.put(frame(size))
    assert len((await queue.get(1)).data) == 60
    queue.put(frame(60))
    queue.put(frame(1))
    queue.put(frame(0))
    assert [len((await queue.get(1)).data) for _ in range(2)] == [40, 60]
    with pytest.raises(StreamBroken):
        await queue.get(1)


async def test_a_stream_that_somebody_ends_is_read_to_its_end_and_takes_no_more():
    queue = FrameQueue()
    queue.put(frame(1))
    queue.end("the connection was lost")
    queue.put(frame(2))
    assert len((await queue.get(1)).data) == 1
    with pytest.raises(StreamBroken, match="the connection was lost"):
        await queue.get(1)


async def test_a_reader_that_waits_is_told_of_the_end():
    queue = FrameQueue()
    waiting = asyncio.create_task(queue.get(30))
    await asyncio.sleep(0)
    queue.end("the connection was lost")
    with pytest.raises(StreamBroken, match="the connection was lost"):
        await waiting


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
async def test_tokens_are_random_and_a_child_process_has_others():
    program = (
        "import os, sys; from postroom_a2a.nats.mailbox import random_token as token; token(); child = os.fork()\n"
        "child and os.waitpid(child, 0)\n"
        "print(token(), token(), flush=True)"
    )
    ran = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE
    )
    tokens = (await ran.communicate())[0].decode().split()
    assert len(set(tokens)) == 4
    assert all(re.fullmatch("[0-9a-f]{20}", token) for token in tokens)
