"""Reading an agent goes on while an action waits, and ends when all is carried out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from postroom.protocol.verbs import Post
from postroom.sidecar.adapters import JsonLines, Output, Said
from postroom.sidecar.keys import Owner
from postroom.sidecar.reading import MOST, Hearing, Reading

pytestmark = pytest.mark.anyio


class Desk:
    """Carries out the posts of a reading: those that begin with `slow` when the test lets them."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.go = asyncio.Event()
        self.changed = asyncio.Condition()

    def owner_of(self, said: Said) -> Owner:
        return Owner(said.text.partition(" ")[0] if isinstance(said, Post) else "output")

    async def act(self, said: Said, _owner: Owner) -> None:
        assert isinstance(said, Post | Output)
        if said.text.startswith("slow"):
            await self.go.wait()
        async with self.changed:
            self.done.append(said.text)
            self.changed.notify_all()

    async def until(self, *done: str) -> None:
        async with self.changed:
            await self.changed.wait_for(lambda: self.done == list(done))


@asynccontextmanager
async def reading() -> AsyncGenerator[
    tuple[asyncio.StreamReader, Desk, Reading, asyncio.Task[None]]
]:
    desk, stdout = Desk(), asyncio.StreamReader()
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        found = Reading(stdout, JsonLines(), Hearing(desk.owner_of, desk.act), tasks)
        running = tasks.create_task(found.run())
        yield stdout, desk, found, running
        running.cancel()
        await found.cancel()


def lines(*texts: str) -> bytes:
    return "".join(f'{{"type":"post","text":"{text}"}}\n' for text in texts).encode()


@pytest.mark.requirement("sidecar-message-handed")
async def test_what_follows_an_action_that_waits_is_read_and_carried_out_if_it_is_independent() -> (
    None
):
    async with reading() as (stdout, desk, _, running):
        stdout.feed_data(lines("slow 1", "slow 2", "quick 1"))
        await desk.until("quick 1")
        stdout.feed_data(b"no action\n" + lines("quick 2"))
        await desk.until("quick 1", "no action", "quick 2")

        stdout.feed_eof()
        desk.go.set()
        await running
        assert desk.done == ["quick 1", "no action", "quick 2", "slow 1", "slow 2"]


async def test_the_end_comes_only_when_all_is_carried_out_and_no_line_is_read_twice() -> None:
    async with reading() as (stdout, desk, _, running):
        texts = [f"{owner} {n}" for n in range(100) for owner in ("slow", "a", "b")]
        stdout.feed_data(lines(*texts) + b"no action\n")
        stdout.feed_eof()
        desk.go.set()

        await running
        assert sorted(desk.done) == sorted([*texts, "no action"])
        for owner in ("slow", "a", "b"):
            assert [text for text in desk.done if text.startswith(owner)] == [
                f"{owner} {n}" for n in range(100)
            ]


async def test_an_agent_that_prints_on_is_read_up_to_the_bound_of_what_waits() -> None:
    async with reading() as (stdout, desk, found, _):
        stdout.feed_data(lines("slow 0", "quick 1"))
        await desk.until("quick 1")
        stdout.feed_data(lines(*(f"slow {n}" for n in range(1, 2 * MOST)), "quick 2"))
        for _ in range(20):
            await asyncio.sleep(0)

        assert desk.done == ["quick 1"]
        assert await found.cancel() == MOST
