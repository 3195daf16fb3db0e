from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator

import pytest

from postroom.sidecar.process import PAGE, AgentInput

pytestmark = pytest.mark.anyio


class Reader:
    """The agent's side of the pipe."""

    def __init__(self, agent_input: AgentInput) -> None:
        self.end = os.dup(agent_input.read_end)
        agent_input.close_read_end()

    def read(self, count: int = 1 << 20) -> bytes:
        return os.read(self.end, count)

    def close(self) -> None:
        if self.end >= 0:
            os.close(self.end)
            self.end = -1


@pytest.fixture
async def pipe() -> AsyncIterator[tuple[AgentInput, Reader]]:
    agent_input = AgentInput()
    reader = Reader(agent_input)
    yield agent_input, reader
    agent_input.close()
    reader.close()


async def turns() -> None:
    """Let everything that can go on go on."""
    for _ in range(5):
        await asyncio.sleep(0)


Pipe = tuple[AgentInput, Reader]


@pytest.mark.requirement("mail-states-forward")
async def test_drained_waits_until_the_last_byte_was_read(pipe: Pipe):
    agent_input, reader = pipe
    await agent_input.write(b"hello")
    waiting = asyncio.create_task(agent_input.drained())
    await turns()
    assert not waiting.done()

    assert reader.read(4) == b"hell"
    await turns()
    assert not waiting.done()

    assert reader.read() == b"o"
    async with asyncio.timeout(5):
        await waiting


async def test_more_than_a_page_is_written_as_it_is_read(pipe: Pipe):
    agent_input, reader = pipe
    data = os.urandom(10 * PAGE + 7)
    writing = asyncio.create_task(agent_input.write(data))
    await turns()
    assert not writing.done()

    read = b""
    async with asyncio.timeout(10):
        while len(read) < len(data):
            read += await asyncio.to_thread(reader.read)
        await writing
    assert read == data


async def test_a_reader_that_goes_away_is_told_from_one_that_has_read(pipe: Pipe):
    agent_input, reader = pipe
    await agent_input.write(b"hello")
    waiting = asyncio.create_task(agent_input.drained())
    await turns()
    reader.close()

    with pytest.raises(BrokenPipeError):
        await asyncio.wait_for(waiting, 5)
    with pytest.raises(BrokenPipeError):
        await agent_input.write(b"x")


async def test_closing_wakes_the_writer_even_if_someone_else_holds_the_other_end(pipe: Pipe):
    agent_input, _ = pipe
    writing = asyncio.create_task(agent_input.write(b"x" * 3 * PAGE))
    await turns()
    agent_input.close()

    with pytest.raises(BrokenPipeError):
        await asyncio.wait_for(writing, 5)


async def test_a_cancelled_write_leaves_nothing_behind(pipe: Pipe):
    agent_input, reader = pipe
    writing = asyncio.create_task(agent_input.write(b"x" * 2 * PAGE))
    await turns()
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing

    assert reader.read() == b"x" * PAGE
    await asyncio.wait_for(agent_input.drained(), 5)
