"""Pages of ListTasks (A2A 1.0, section 3.1.4): the tasks of an agent, those that changed last first."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any

from postroom.errors import InvalidInput
from postroom.protocol.limits import MAX_PAGE_BYTES
from postroom.store.database import Store
from postroom_a2a.ecma_json import dumps
from postroom_a2a.params import shortened
from postroom_a2a.service import TaskPage, TaskQuery

Position = tuple[float, str]
"""The place of a task in a list: the instant of its last change, and its id."""


def page_of(store: Store, query: TaskQuery, *, worker: str = "", requester: str = "") -> TaskPage:
    """The page that `query` asks for, of the tasks of that worker and that requester, "" for any.

    Raises:
        InvalidInput: its token is not one of ours.
    """
    found, total = store.tasks.updated(
        worker=worker,
        requester=requester,
        context=query.context,
        state="" if query.state is None else query.state.value,
        since=query.since,
        past=position_in(query.page) if query.page else None,
        limit=query.limit + 1,
    )
    tasks: list[dict[str, Any]] = []
    room = MAX_PAGE_BYTES
    for _, task in found[: query.limit]:
        row = store.tasks.task_by_id(task)
        shown = listed(json.loads(row.snapshot), query) if row is not None else {}
        room -= len(dumps(shown))
        if tasks and room < 0:
            break
        tasks.append(shown)
    more = len(found) > len(tasks)
    return TaskPage(tasks, total, token_of(found[len(tasks) - 1]) if more else "")


def listed(task: dict[str, Any], query: TaskQuery) -> dict[str, Any]:
    """A task as the page of that query shows it."""
    shown = shortened(task, query.history)
    if not query.artifacts:
        shown.pop("artifacts", None)
    return shown


def token_of(position: Position) -> str:
    """The name of the page after the task in that place."""
    return base64.urlsafe_b64encode(json.dumps(position).encode()).decode()


def position_in(token: str) -> Position:
    """The place that a token names.

    Raises:
        InvalidInput: it is not one of ours.
    """
    try:
        at, task = json.loads(base64.urlsafe_b64decode(token))
        return float(at), str(task)
    except (ValueError, TypeError, OverflowError, RecursionError, binascii.Error) as error:
        raise InvalidInput("'pageToken' is not one of this server's") from error
