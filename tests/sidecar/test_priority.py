"""What overtakes the inbox, while who has to answer is silent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from postroom.bus.port import Message
from postroom.errors import MessageTooLarge, RequestTimeout
from postroom.protocol import priority, subjects
from postroom.protocol.priority import Cancel, Input
from postroom.sidecar import notices as module
from postroom.sidecar.notices import Priority
from postroom_a2a.messages import text_message, text_of
from postroom_a2a.retry import RetryPolicy

pytestmark = pytest.mark.anyio

OWN, BY, TASK, OTHER = "a" * 32, "b" * 32, "c" * 32, "d" * 32


class Delivered:
    """A delivery that says when it was done with."""

    attempt = 1

    def __init__(self, record: Cancel | Input) -> None:
        payload = priority.encode(record)
        self.message = Message("", BY, subjects.priority(OWN, BY), payload, sequence=1)
        self.done = asyncio.Event()
        self.given_back = False

    async def ack(self) -> None:
        self.done.set()

    async def nak(self, _delay: float) -> None:
        self.given_back = True
        self.done.set()


class Engine:
    """Answers fail until the test says that there is somebody to take them."""

    def __init__(self) -> None:
        self.taken: list[str] = []
        self.tried = asyncio.Event()
        self.silent = True

    async def answer(self, task: str, _by: str, message: dict[str, Any]) -> None:
        text = text_of(message)
        if text == "too large":
            raise MessageTooLarge("it is too large")
        if self.silent and task == TASK:
            self.tried.set()
            raise RequestTimeout("nobody answers")
        self.taken.append(text)

    async def cancel(self, _task: str, _by: str, reason: str) -> None:
        self.taken.append(f"canceled: {reason}")


@asynccontextmanager
async def running(engine: Engine) -> AsyncGenerator[Priority]:
    fake: Any = engine
    unused: Any = None
    lane = Priority(fake, unused, unused)
    life = asyncio.create_task(lane.run())
    await asyncio.sleep(0)
    try:
        async with asyncio.timeout(10):
            yield lane
    finally:
        life.cancel()
        await asyncio.wait({life})


async def given(lane: Priority, record: Cancel | Input) -> Delivered:
    delivery: Any = Delivered(record)
    await lane.take(delivery)
    return delivery


def answer(text: str, task: str = TASK) -> Input:
    return Input(task, text_message("m", text))


@pytest.mark.requirement("task-answer-resumes")
async def test_of_two_answers_to_one_task_the_first_is_taken_first_whoever_was_silent_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "BACKOFF", RetryPolicy(base=0.0))
    engine = Engine()
    async with running(engine) as lane:
        first = await given(lane, answer("the first"))
        await engine.tried.wait()
        second = await given(lane, answer("the second"))
        engine.silent = False

        await second.done.wait()
        assert engine.taken == ["the first", "the second"]
        assert first.done.is_set()
        assert not first.given_back


async def test_an_answer_keeps_no_other_task_and_no_cancel_waiting() -> None:
    engine = Engine()
    async with running(engine) as lane:
        waiting = await given(lane, answer("nobody takes it"))
        await engine.tried.wait()

        for record in (answer("to another", OTHER), Cancel(TASK, "it is late")):
            await (await given(lane, record)).done.wait()

        assert engine.taken == ["to another", "canceled: it is late"]
        assert not waiting.done.is_set()


async def test_an_answer_that_cannot_ever_be_stored_is_given_back_and_the_next_one_counts() -> None:
    engine = Engine()
    engine.silent = False
    async with running(engine) as lane:
        first = await given(lane, answer("too large"))
        second = await given(lane, answer("small"))

        await second.done.wait()
        assert first.given_back
        assert engine.taken == ["small"]
