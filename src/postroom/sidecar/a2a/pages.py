"""The pages of ListTasks, made of the control plane's TaskViews."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from postroom.errors import InvalidInput
from postroom.protocol.limits import MAX_PAGE_BYTES
from postroom_a2a.ecma_json import dumps
from postroom_a2a.params import shortened
from postroom_a2a.service import TaskPage, TaskQuery
from postroom_a2a.times import parse_time


class Snapshots(Protocol):
    """Tasks by their ids."""

    async def snapshot(self, task_id: str, /) -> dict[str, Any]:
        """A task as JSON."""
        ...


async def page_of(
    views: Sequence[Mapping[str, Any]], query: TaskQuery, snapshots: Snapshots
) -> TaskPage:
    """The page that `query` asks for, of the tasks with these TaskViews; raises InvalidInput for an unknown page."""
    found = sorted(
        (
            (at, str(view["id"]))
            for view in views
            if query.context in ("", view["context"])
            and query.state in (None, view["state"])
            and (at := parse_time(view["updated_at"])) >= query.since
        ),
        reverse=True,
    )
    after = _position(query.page) if query.page else None
    rest = [each for each in found if after is None or each < after]
    tasks: list[dict[str, Any]] = []
    room = MAX_PAGE_BYTES
    for _, task in rest[: query.limit]:
        snapshot = shortened(await snapshots.snapshot(task), query.history)
        if not query.artifacts:
            snapshot.pop("artifacts", None)
        room -= len(dumps(snapshot))
        if tasks and room < 0:
            break
        tasks.append(snapshot)
    more = len(rest) > len(tasks)
    return TaskPage(tasks, len(found), _token(rest[len(tasks) - 1]) if more else "")


def _token(position: tuple[float, str]) -> str:
    """The name of the page after the task with this (time of the last change, id)."""
    return base64.urlsafe_b64encode(json.dumps(position).encode()).decode()


def _position(token: str) -> tuple[float, str]:
    try:
        at, task = json.loads(base64.urlsafe_b64decode(token))
        return float(at), str(task)
    except (ValueError, TypeError, OverflowError, RecursionError, binascii.Error) as error:
        raise InvalidInput("'pageToken' is not one of this server's") from error
