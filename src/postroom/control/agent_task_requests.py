"""Requests of agents about tasks on `ctl.<own>.tasks.<verb>` (docs/architecture.md, Tasks).

Only a task's worker and its requester may know of it; for every other agent it does not exist.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

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
from postroom.protocol.principal import Principal
from postroom.store.ports import TaskHead, TaskRow
from postroom.tasks.operations import stream_response
from postroom.tasks.pages import page_of
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

TaskVerb = Callable[[Principal, dict[str, Any]], Awaitable[dict[str, Any]]]
"""Takes the asker and its request; returns the answer."""


class AgentTaskRequests:
    """Answers the requests; `verbs` has the methods by name.

    A worker's lease of a task lasts as long as the run that has taken the task.
    """

    def __init__(self, parts: Parts) -> None:
        self._office = parts.tasks
        self._database = parts.database
        self._workers = parts.workers
        self._caught_up = parts.tasks_folded
        self._choose = parts.assigner.choose
        self.verbs: dict[str, TaskVerb] = {
            "open": self.open,
            "get": self.get,
            "list": self.listed,
            "page": self.page,
            "changes": self.changes,
            "choose": self.choose,
            "cancel": self.cancel,
            "answer": self.answer,
        }

    async def open(self, me: Principal, asked: dict[str, Any]) -> dict[str, Any]:
        """The tasks that a worker has taken and not ended; with `untaken` those that it has not taken.

        The answer includes everything that is in the log now.
        """
        run, after = _text(asked, "run"), _number(asked, "after", 0)
        await self._fresh()
        found = await self._database.read(
            lambda store: store.tasks.open_tasks(
                worker=me.uid,
                after=after,
                limit=OPEN_PAGE,
                taken=asked.get("untaken") is not True,
            )
        )
        return {
            "tasks": [_lease(head) | {"free": self._free(head, run)} for head in found],
            "more": len(found) == OPEN_PAGE,
        }

    async def get(self, me: Principal, asked: dict[str, Any]) -> dict[str, Any]:
        """One task with its snapshot."""
        if asked.get("fresh") is True:
            await self._fresh()
        row = await self._own(me, asked)
        view = await self._office.get(row.id)
        answer = {
            **_lease(row),
            "worker": row.worker,
            "free": self._free(row, _text(asked, "run")),
            "task": json.loads(row.snapshot),
        }
        return answer | {"view": _fitting(view.as_json(), MAX_AGENT_ANSWER - _size(answer))}

    async def listed(self, me: Principal, asked: dict[str, Any]) -> dict[str, Any]:
        """Tasks of the asker, the newest first; without `role` those that it runs and those that it asked for.

        `other` narrows to tasks that have that agent on their other side.
        """
        role, limit = _text(asked, "role"), _number(asked, "limit", LIST_PAGE)
        other = _text(asked, "other")
        if role not in {"", "worker", "requester"}:
            raise InvalidInput(f"there is no role {role!r}", remedy="worker, requester or none")
        roles = (role,) if role else ("worker", "requester")
        found: dict[str, TaskView] = {}
        limit = min(max(limit, 1), MAX_LIST)
        for each in roles:
            views = await self._office.listed(
                worker=me.uid if each == "worker" else other,
                requester=me.uid if each == "requester" else other,
                open_only=True if asked.get("open") is True else None,
                limit=limit,
            )
            found |= {view.id: view for view in views}
        newest = sorted(found.values(), key=lambda view: view.requested, reverse=True)[:limit]
        share = MAX_AGENT_ANSWER // limit
        return {"tasks": [_fitting(view.as_json(), share) for view in newest]}

    async def page(self, me: Principal, asked: dict[str, Any]) -> dict[str, Any]:
        """A page of A2A's ListTasks: of the tasks that the asker runs (`worker`) or asked for (`requester`).

        `other` narrows to tasks that have that agent on their other side. Includes all that is in the log now.
        """
        role, other = _text(asked, "role"), _text(asked, "other")
        if role not in {"worker", "requester"}:
            raise InvalidInput(f"there is no role {role!r}", remedy="worker or requester")
        state, history = _text(asked, "state"), asked.get("history")
        query = TaskQuery(
            context=_text(asked, "context"),
            state=TaskState(state) if state else None,
            since=float(asked.get("since", 0.0)),
            limit=min(max(_number(asked, "limit", LIST_PAGE), 1), LIST_MOST),
            page=_text(asked, "page"),
            history=None if history is None else _number(asked, "history", 0),
            artifacts=asked.get("artifacts") is True,
        )
        await self._fresh()
        worker, requester = (me.uid, other) if role == "worker" else (other, me.uid)
        found = await self._database.read(
            lambda store: page_of(store, query, worker=worker, requester=requester)
        )
        return {"tasks": found.tasks, "total": found.total, "next": found.next_page}

    async def changes(self, me: Principal, asked: dict[str, Any]) -> dict[str, Any]:
        """A page of a task's changes past sequence `after`, with the task; includes all that is in the log now."""
        await self._fresh()
        row, after = await self._own(me, asked), _number(asked, "after", 0)
        found = await self._database.read(
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

    async def choose(self, me: Principal, asked: dict[str, Any]) -> dict[str, Any]:
        """Another agent that has a skill; the same agent again for the same key."""
        skill, key = _text(asked, "skill"), _text(asked, "key")
        if not 0 < len(skill) <= MAX_LABEL or len(key) > MAX_DERIVED_KEY:
            raise InvalidInput("the skill or the key is too long, or the skill is missing")
        agent = await self._choose(me.uid, skill, key)
        return {"uid": agent.uid, "nick": agent.nick, "kind": agent.kind}

    async def cancel(self, me: Principal, asked: dict[str, Any]) -> dict[str, Any]:
        """End a task that the asker asked for."""
        row = await self._requested(me, asked)
        reason = one_line(_text(asked, "reason"), MAX_REASON)
        view = await self._office.cancel(row.id, me.uid, reason=reason, timeout=CANCEL_WAIT)
        return {"view": _fitting(view.as_json(), MAX_AGENT_ANSWER)}

    async def answer(self, me: Principal, asked: dict[str, Any]) -> dict[str, Any]:
        """Give a task that the asker asked for the input that it waits for."""
        row = await self._requested(me, asked)
        message = asked.get("message")
        if not isinstance(message, dict):
            raise InvalidInput("message is not an object")
        named = one_line(_text(message, "messageId"), MAX_ID)
        view = await self._office.answer(row.id, me.uid, Content.whole(message), named)
        return {"view": _fitting(view.as_json(), MAX_AGENT_ANSWER), "again": view.again}

    # ── inside ──────────────────────────────────────────────────────────────────────────────────────────

    async def _fresh(self) -> None:
        try:
            await self._caught_up()
        except TimeoutError as error:
            raise RequestTimeout(
                "the control plane did not read the records of tasks in time"
            ) from error

    async def _own(self, me: Principal, asked: dict[str, Any]) -> TaskRow:
        named = _text(asked, "task")
        row = await self._known(me, named)
        if row is None:
            # The asker may know of its new task before it is folded here. A task of others takes this way, too, so
            # that the time of the answer does not tell whether it exists.
            await self._fresh()
            row = await self._known(me, named)
        if row is None:
            raise NotFound("there is no such task of yours")
        return row

    async def _known(self, me: Principal, named: str) -> TaskRow | None:
        try:
            return await self._office.find(named, me.only)
        except (Conflict, NotFound):  # Conflict: several tasks fit, and they may be others'
            return None

    async def _requested(self, me: Principal, asked: dict[str, Any]) -> TaskRow:
        row = await self._own(me, asked)
        if row.requester != me.uid:
            raise NotFound("there is no such task that you asked for")
        return row

    def _free(self, head: TaskHead, run: str) -> bool:
        return head.runner == run or not self._workers.lives(head.worker, head.runner)


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


def _text(asked: dict[str, Any], key: str) -> str:
    value = asked.get(key, "")
    if not isinstance(value, str):
        raise InvalidInput(f"{key} is not a text")
    return value


def _number(asked: dict[str, Any], key: str, default: int) -> int:
    value = asked.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
        raise InvalidInput(f"{key} is not a whole number from 0 on")
    return value
