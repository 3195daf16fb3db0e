"""Following a task when what is said live of it is not what is stored; no bus."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from postroom.sidecar.a2a import changes as module
from postroom.sidecar.a2a.changes import Change, Changes, Page
from postroom_a2a.task_state import TaskState

pytestmark = pytest.mark.anyio


def change(after: int, sequence: int, text: str, **more: Any) -> Change:
    return Change(after, sequence, more.pop("state", TaskState.WORKING), {"said": text}, **more)


class Log:
    """What is stored."""

    def __init__(self, *stored: Change) -> None:
        self.stored = list(stored)
        self.read = asyncio.Event()

    async def changes(self, _task: str, after: int) -> Page:
        self.read.set()
        last = self.stored[-1]
        found = tuple(each for each in self.stored if each.sequence > after)
        return Page(found, False, last.sequence, last.state, {})


async def shown(changes: Changes, log: Log) -> list[str]:
    async with asyncio.timeout(10), aclosing(changes.follow(log, "t", 0)) as following:
        return [each.event["said"] async for each in following if each.event is not None]


@pytest.mark.requirement("task-news-from-log-only")
async def test_who_is_told_changes_that_there_are_not_is_shown_those_that_there_are():
    changes, log = Changes(), Log(change(0, 5, "begun"))
    following = asyncio.create_task(shown(changes, log))
    await log.read.wait()
    changes.put("t", change(5, 2**50, "lie", proven=False))
    log.stored += [
        change(5, 7, "made"),
        change(7, 9, "done", state=TaskState.COMPLETED),
    ]
    changes.put("t", change(2**50, 2**50 + 1, "no end", state=TaskState.FAILED, proven=False))
    assert await following == ["begun", "lie", "made", "done"]


@pytest.mark.requirement("task-news-from-log-only")
async def test_who_is_told_changes_without_end_is_shown_the_end_that_is_stored(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(module, "LOOK", 0.01)
    changes, log = Changes(), Log(change(0, 5, "begun"))
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
