"""Tasks of an agent as blocks of a log. The functions block: run them in a thread."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from postroom.tui.rowlog.log import Block
from postroom.tui.worker.reading import Read
from postroom.view.task_rows import short_rows, whole_rows

if TYPE_CHECKING:
    from postroom.client.http import Client
    from postroom.protocol.shapes import Task, TaskEvent

SHOWN = 20
"""Tasks of an agent without events that are listed."""

UNFOLDED = 3
"""The newest of them, whose changes are fetched."""

PAGE = 200


def task_blocks(client: Client, uid: str, *, requester: bool = False) -> list[Block]:
    """The newest tasks of an agent, the oldest of them first.

    Args:
        requester: those that it asked for; otherwise those that it does.

    Raises:
        PostroomError: the post room is away, or refuses.
    """
    found = client.tasks(
        worker="" if requester else uid, requester=uid if requester else "", limit=SHOWN
    )
    now = time.time()
    blocks = []
    for place, task in enumerate(found):
        events = events_of(client, task) if place < UNFOLDED else ()
        rows = list(short_rows(task, events, now))
        folded = task["final"] and place > 0
        blocks.append(Block(rows, f"task {task['id']}", folds=len(rows) > 1, folded=folded))
    return blocks[::-1]


def events_of(client: Client, task: Task) -> Iterator[TaskEvent]:
    """All changes of a task, page by page."""
    after = 0
    while page := client.task_events(task["id"], after=after, limit=PAGE):
        yield from page
        if len(page) < PAGE:
            return
        after = page[-1]["seq"]


def read_task(client: Client, ref: str) -> Read:
    """A task, whole, for a screen of text."""
    task = client.task(ref)
    rows = list(whole_rows(task, events_of(client, task), time.time()))
    return [], [Block(rows)]
