"""Following a task when what is said live of it is not what is stored; no bus."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import pytest

from postroom.sidecar.a2a import changes as module
from postroom.sidecar.a2a.changes import SEQUENCE, LivePeers, Page, TaskChange, TaskChanges
from postroom_a2a.binding.frames import Request, Response
from postroom_a2a.task_state import TaskState

pytestmark = pytest.mark.anyio


def change(after: int, sequence: int, text: str, **more: Any) -> TaskChange:
    return TaskChange(after, sequence, more.pop("state", TaskState.WORKING), {"said": text}, **more)


class Log:
    """What is stored."""

    def __init__(self, *stored: TaskChange) -> None:
        self.stored = list(stored)
        self.read = asyncio.Event()
        self.reads = 0

    async def changes(self, _task: str, after: int) -> Page:
        self.read.set()
        self.reads += 1
        last = self.stored[-1]
        found = tuple(each for each in self.stored if each.sequence > after)
        return Page(found, False, last.sequence, last.state, {})


async def shown(changes: TaskChanges, log: Log) -> list[str]:
    return await shown_of(changes.follow(log, "t", 0))


async def shown_of(stream: AsyncGenerator[TaskChange, None]) -> list[str]:
    async with asyncio.timeout(10), aclosing(stream) as following:
        return [each.event["said"] async for each in following if each.event is not None]


@pytest.mark.requirement("task-kill-requester-told")
async def test_who_is_told_changes_that_there_are_not_is_shown_those_that_there_are():
    changes, log = TaskChanges(), Log(change(0, 5, "begun"))
    following = asyncio.create_task(shown(changes, log))
    await log.read.wait()
    changes.put("t", change(5, 2**50, "lie", proven=False))
    log.stored += [
        change(5, 7, "made"),
        change(7, 9, "done", state=TaskState.COMPLETED),
    ]
    changes.put("t", change(2**50, 2**50 + 1, "no end", state=TaskState.FAILED, proven=False))
    assert await following == ["begun", "lie", "made", "done"]


@pytest.mark.requirement("task-kill-requester-told")
async def test_who_is_told_changes_without_end_is_shown_the_end_that_is_stored(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(module, "LOOK", 0.01)
    changes, log = TaskChanges(), Log(change(0, 5, "begun"))
    following = asyncio.create_task(shown(changes, log))
    await log.read.wait()
    log.stored.append(change(5, 7, "canceled", state=TaskState.CANCELED))
    last = 5
    while not following.done():
        number = max(last + 1, 2**40)
        changes.put("t", change(last, number, "lie", proven=False))
        last = number
        await asyncio.sleep(0)
    assert (await following)[-1] == "canceled"


class Liar:
    """A caller whose peer streams one frame and then nothing."""

    def __init__(self, frame: Any) -> None:
        self._frame = frame

    async def stream(self, request: Request, *, timeout: float) -> AsyncGenerator[Response]:
        del timeout
        yield Response(request.id, result=self._frame)

    async def close(self) -> None: ...


def hostile_frames() -> dict[str, Any]:
    """Frames of which none is a change of the task `t`."""
    about: dict[str, Any] = {"taskId": "t", "contextId": "t"}
    about["metadata"] = {SEQUENCE: {"after": 5, "sequence": 6}}
    about["status"] = {"state": "TASK_STATE_WORKING"}
    deep: Any = []
    for _ in range(150):
        deep = [deep]
    wide = [[] for _ in range(10_000)]
    return {
        "of another task": {"statusUpdate": about | {"taskId": "0" * 32}},
        "two at once": {"statusUpdate": about, "message": {}},
        "without a number": {"statusUpdate": about | {"metadata": {}}},
        "nested deep": {"statusUpdate": about | {"status": about["status"] | {"x": deep}}},
        "very wide": {"statusUpdate": about | {"status": about["status"] | {"x": wide}}},
        "not an object": 7,
    }


@pytest.mark.requirement("task-kill-requester-told")
async def test_a_live_frame_that_is_no_change_of_the_task_is_not_shown_and_ends_no_stream(
    caplog: pytest.LogCaptureFixture,
):
    for kind, frame in hostile_frames().items():
        changes, log, liar = TaskChanges(), Log(change(0, 5, "begun")), Liar(frame)
        live = LivePeers(lambda _, liar=liar: liar, changes, "own")  # ty: ignore[invalid-argument-type]
        following = asyncio.create_task(shown_of(live.follow(log, "t", 0, "peer")))
        async with asyncio.timeout(10):
            while log.reads < 2:  # the second time because the peer's stream has ended  # noqa: ASYNC110
                await asyncio.sleep(0)
        log.stored.append(change(5, 7, "done", state=TaskState.COMPLETED))
        changes.note("t", 7)
        assert await following == ["begun", "done"], kind
        await live.close()
    assert "failed" not in caplog.text
