"""Requests of agents about tasks on `ctl.<own>.tasks.<verb>` (docs/architecture.md, Tasks).

Only a task's worker and its requester may know of it; for every other agent it does not exist. A worker's lease of a
task lasts as long as the run that has taken the task.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from postroom.control.ops.table import As, Operations
from postroom.control.parts import Parts
from postroom.errors import Conflict, InvalidInput, NotFound, RequestTimeout
from postroom.protocol import shapes
from postroom.protocol.content import Content
from postroom.protocol.limits import (
    MAX_AGENT_ANSWER,
    MAX_DERIVED_KEY,
    MAX_LABEL,
    MAX_LIST,
    MAX_REASON,
    MAX_SHOWN_TEXT,
)
from postroom.protocol.principal import Principal, Scope
from postroom.store.ports import TaskHead, TaskRow
from postroom.tasks.operations import page_of, stream_response
from postroom.tasks.views import TaskView
from postroom_a2a.bounds import MAX_ID
from postroom_a2a.bounds import MAX_PAGE as LIST_MOST
from postroom_a2a.service import TaskQuery
from postroom_a2a.task_state import TaskState
from postroom_a2a.text import one_line

OPEN_PAGE = 500
"""Tasks in one answer to `tasks.open`."""

LIST_PAGE = 50

CHANGES_PAGE = 100
"""Changes in one answer to `tasks.changes`."""

CANCEL_WAIT = 2.0
"""Seconds that a cancel waits for the task to end; the asker hears of the end in any case."""

Text = Annotated[str, Field(strict=True)]
Count = Annotated[int, Field(ge=0, lt=2**63, strict=True)]
Skill = Annotated[str, Field(strict=True, min_length=1, max_length=MAX_LABEL)]
Key = Annotated[str, Field(strict=True, max_length=MAX_DERIVED_KEY)]
Side = Literal["", "worker", "requester"]
OpenOnly = Annotated[bool, As("open")]
InState = Annotated[TaskState | None, BeforeValidator(lambda given: given or None)]

operations = Operations()


@operations.ask("tasks.open", Scope.TASK)
async def open_(
    parts: Parts, me: Principal, run: Text = "", after: Count = 0, *, untaken: bool = False
) -> dict[str, Any]:
    """The tasks that a worker has taken and not ended; with `untaken` those that it has not taken.

    The answer includes everything that is in the log now.
    """
    await _fresh(parts)
    found = await parts.database.read(
        lambda store: store.tasks.open_tasks(
            worker=me.uid,
            after=after,
            limit=OPEN_PAGE,
            taken=not untaken,
        )
    )
    return {
        "tasks": [_lease(head) | {"free": _free(parts, head, run)} for head in found],
        "more": len(found) == OPEN_PAGE,
    }


@operations.ask("tasks.get", Scope.READ)
async def get(
    parts: Parts, me: Principal, task: Text = "", run: Text = "", *, fresh: bool = False
) -> dict[str, Any]:
    """One task with its snapshot."""
    if fresh:
        await _fresh(parts)
    row = await _own(parts, me, task)
    view = await parts.tasks.get(row.id)
    answer = {
        **_lease(row),
        "worker": row.worker,
        "free": _free(parts, row, run),
        "task": json.loads(row.snapshot),
    }
    return answer | {"view": _fitting(view.as_json(), MAX_AGENT_ANSWER - _size(answer))}


@operations.ask("tasks.list", Scope.READ)
async def list_(
    parts: Parts,
    me: Principal,
    role: Side = "",
    other: Text = "",
    limit: Count = LIST_PAGE,
    *,
    open_only: OpenOnly = False,
) -> dict[str, Any]:
    """Tasks of the asker, the newest first; without `role` those that it runs and those that it asked for.

    `other` narrows to tasks that have that agent on their other side.
    """
    roles = (role,) if role else ("worker", "requester")
    found: dict[str, TaskView] = {}
    limit = min(max(limit, 1), MAX_LIST)
    for each in roles:
        views = await parts.tasks.listed(
            worker=me.uid if each == "worker" else other,
            requester=me.uid if each == "requester" else other,
            open_only=open_only or None,
            limit=limit,
        )
        found |= {view.id: view for view in views}
    newest = sorted(found.values(), key=lambda view: view.requested, reverse=True)[:limit]
    share = MAX_AGENT_ANSWER // limit
    return {"tasks": [_fitting(view.as_json(), share) for view in newest]}


@operations.ask("tasks.page", Scope.READ)
async def page(
    parts: Parts,
    me: Principal,
    role: Literal["worker", "requester"],
    other: Text = "",
    context: Text = "",
    state: InState = None,
    since: float = 0.0,
    limit: Count = LIST_PAGE,
    page: Text = "",
    history: Count | None = None,
    *,
    artifacts: bool = False,
) -> dict[str, Any]:
    """A page of A2A's ListTasks: of the tasks that the asker runs (`worker`) or asked for (`requester`).

    `other` narrows to tasks that have that agent on their other side. Includes all that is in the log now.
    """
    query = TaskQuery(
        context=context,
        state=state,
        since=since,
        limit=min(max(limit, 1), LIST_MOST),
        page=page,
        history=history,
        artifacts=artifacts,
    )
    await _fresh(parts)
    worker, requester = (me.uid, other) if role == "worker" else (other, me.uid)
    found = await parts.database.read(
        lambda store: page_of(store, query, worker=worker, requester=requester)
    )
    return {"tasks": found.tasks, "total": found.total, "next": found.next_page}


@operations.ask("tasks.changes", Scope.READ)
async def changes(parts: Parts, me: Principal, task: Text = "", after: Count = 0) -> dict[str, Any]:
    """A page of a task's changes past sequence `after`, with the task; includes all that is in the log now."""
    await _fresh(parts)
    row = await _own(parts, me, task)
    found = await parts.database.read(
        lambda store: store.tasks.events_of(task=row.id, after=after, limit=CHANGES_PAGE)
    )
    # A change that was folded since the task was read belongs to a later page.
    found = [each for each in found if each.seq <= row.seq]
    answer = {"sequence": row.seq, "state": row.state, "task": json.loads(row.snapshot)}
    changes: list[dict[str, Any]] = []
    room = MAX_AGENT_ANSWER - _size(answer)
    for each in found:
        change = {
            "sequence": each.seq,
            "state": each.state,
            "event": stream_response(each, row),
        }
        room -= _size(change)
        if changes and room < 0:
            break
        changes.append(change)
    return {
        "changes": changes,
        "more": len(changes) < len(found) or len(found) == CHANGES_PAGE,
    } | answer


@operations.ask("tasks.choose", Scope.TASK)
async def choose(parts: Parts, me: Principal, skill: Skill, key: Key = "") -> dict[str, Any]:
    """Another agent that has a skill; the same agent again for the same key."""
    agent = await parts.assigner.choose(me.uid, skill, key)
    return {"uid": agent.uid, "nick": agent.nick, "kind": agent.kind}


@operations.ask("tasks.cancel", Scope.TASK)
async def cancel(parts: Parts, me: Principal, task: Text = "", reason: Text = "") -> dict[str, Any]:
    """End a task that the asker asked for."""
    row = await _requested(parts, me, task)
    reason = one_line(reason, MAX_REASON)
    view = await parts.tasks.cancel(row.id, me.uid, reason=reason, timeout=CANCEL_WAIT)
    return {"view": _fitting(view.as_json(), MAX_AGENT_ANSWER)}


@operations.ask("tasks.answer", Scope.TASK)
async def answer(
    parts: Parts, me: Principal, task: Text = "", message: Any = None
) -> dict[str, Any]:
    """Give a task that the asker asked for the input that it waits for."""
    row = await _requested(parts, me, task)
    if not isinstance(message, dict):
        raise InvalidInput("message is not an object")
    named = one_line(str(message.get("messageId", "")), MAX_ID)
    view = await parts.tasks.answer(row.id, me.uid, Content.whole(message), named)
    return {"view": _fitting(view.as_json(), MAX_AGENT_ANSWER), "again": view.again}


async def _fresh(parts: Parts) -> None:
    try:
        await parts.tasks_folded()
    except TimeoutError as error:
        raise RequestTimeout(
            "the control plane did not read the records of tasks in time"
        ) from error


async def _own(parts: Parts, me: Principal, named: str) -> TaskRow:
    row = await _known(parts, me, named)
    if row is None:
        # The asker may know of its new task before it is folded here. A task of others takes this way, too, so
        # that the time of the answer does not tell whether it exists.
        await _fresh(parts)
        row = await _known(parts, me, named)
    if row is None:
        raise NotFound("there is no such task of yours")
    return row


async def _known(parts: Parts, me: Principal, named: str) -> TaskRow | None:
    try:
        return await parts.tasks.find(named, me.only)
    except (Conflict, NotFound):  # Conflict: several tasks fit, and they may be others'
        return None


async def _requested(parts: Parts, me: Principal, named: str) -> TaskRow:
    row = await _own(parts, me, named)
    if row.requester != me.uid:
        raise NotFound("there is no such task that you asked for")
    return row


def _free(parts: Parts, head: TaskHead, run: str) -> bool:
    return head.runner == run or not parts.workers.lives(head.worker, head.runner)


def _lease(head: TaskHead) -> dict[str, Any]:
    return {
        "id": head.id,
        "request": head.request,
        "requester": head.requester,
        "skill": head.skill,
        "requested": head.requested_seq,
        "sequence": head.seq,
        "state": head.state,
        "attempt": head.attempt,
        "lost": head.lost,
        "released": head.released,
        "runner": head.runner,
    }


_WHOLE = ("parts", "status_parts")
"""Fields of a task that hold its texts a second time, and whatever else was said."""


def _size(document: dict[str, Any]) -> int:
    return len(json.dumps(document, ensure_ascii=False).encode())


def _fitting(task: shapes.Task, room: int) -> dict[str, Any]:
    """`task`, with its texts cut if it is over `room` bytes."""
    view: dict[str, Any] = {**task}
    if _size(view) <= room:
        return view
    # What the parts say once more goes first.
    view = {name: value for name, value in view.items() if name not in _WHOLE}
    cut: dict[str, Any] = {name: view[name][:MAX_SHOWN_TEXT] for name in ("text", "status_text")}
    cut["truncated"] = True
    if "artifacts" in view and _size(view | cut) > room:
        cut["artifacts"] = [
            {**each, "text": each["text"][:MAX_SHOWN_TEXT], "parts": []}
            for each in view["artifacts"]
        ]
    return view | cut
