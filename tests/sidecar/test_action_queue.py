"""Actions beside the reading: their order, their bound, their end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from postroom.protocol.verbs import Post
from postroom.sidecar import reading as action_queue
from postroom.sidecar.adapters import Said
from postroom.sidecar.keys import Owner
from postroom.sidecar.reading import ActionQueue

pytestmark = pytest.mark.anyio


@dataclass
class Desk:
    """Carries out each action when the test lets it."""

    begun: list[str] = field(default_factory=list)
    gates: dict[str, asyncio.Event] = field(default_factory=dict)

    async def act(self, said: Said, _owner: Owner) -> None:
        assert isinstance(said, Post)
        self.begun.append(said.text)
        await self.gates.setdefault(said.text, asyncio.Event()).wait()

    async def finish(self, text: str) -> None:
        self.gates.setdefault(text, asyncio.Event()).set()
        await settle()


async def settle() -> None:
    for _ in range(6):
        await asyncio.sleep(0)


@asynccontextmanager
async def queue() -> AsyncGenerator[tuple[ActionQueue, Desk]]:
    desk = Desk()
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        actions = ActionQueue(desk.act, tasks)
        yield actions, desk
        await actions.cancel()


async def put(actions: ActionQueue, *lines: str) -> None:
    """Lines such as `one.1`: the text, whose owner is before the dot."""
    for line in lines:
        await actions.put(Post(line), Owner(line.partition(".")[0]), 1)
    await settle()


@pytest.mark.requirement("mend-waiting-action")
async def test_those_of_one_owner_keep_their_order_and_others_do_not_wait_for_them() -> None:
    async with queue() as (actions, desk):
        await put(actions, "one.1", "one.2", "two.1", "one.3")
        assert desk.begun == ["one.1", "two.1"]

        await desk.finish("one.1")
        assert desk.begun == ["one.1", "two.1", "one.2"]
        await desk.finish("one.2")
        assert desk.begun[-1] == "one.3"
        assert len(actions) == 2


async def test_one_without_an_owner_waits_for_all_before_it_and_all_behind_it_wait() -> None:
    async with queue() as (actions, desk):
        await put(actions, "one.1", ".1", "one.2", "two.1", ".2")
        assert desk.begun == ["one.1"]

        await desk.finish("one.1")
        assert desk.begun == ["one.1", ".1"]
        await desk.finish(".1")
        assert desk.begun == ["one.1", ".1", "one.2", "two.1"]
        await desk.finish("two.1")
        await desk.finish("one.2")
        assert desk.begun[-1] == ".2"


async def test_who_puts_waits_while_too_much_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(action_queue, "MOST", 2)
    async with queue() as (actions, desk):
        await put(actions, "one.1", "one.2")
        putting = asyncio.create_task(put(actions, "two.1"))
        await settle()
        assert (desk.begun, len(actions), putting.done()) == (["one.1"], 2, False)

        await desk.finish("one.1")
        await putting
        assert desk.begun == ["one.1", "one.2", "two.1"]


async def test_a_long_line_waits_for_others_but_not_for_ever() -> None:
    most = action_queue.MOST_BYTES
    async with queue() as (actions, desk):
        await actions.put(Post("long"), Owner("long"), most + 1)
        putting = asyncio.create_task(put(actions, "two.1"))
        await settle()
        assert (desk.begun, putting.done()) == (["long"], False)

        await desk.finish("long")
        await putting
        assert desk.begun == ["long", "two.1"]


async def test_done_returns_when_all_is_carried_out_and_cancel_says_how_many_were_not() -> None:
    async with queue() as (actions, desk):
        await put(actions, "one.1", "one.2", "two.1")
        await desk.finish("two.1")
        ending = asyncio.create_task(actions.done())
        await settle()
        assert not ending.done()

        assert await actions.cancel() == 2
        await put(actions, "three.1")
        await desk.finish("three.1")
        await ending
        assert desk.begun == ["one.1", "two.1", "three.1"]
