"""How much of a stream may lie unread; no bus."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from postroom.errors import StreamBroken
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
