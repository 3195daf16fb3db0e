"""Tasks: delegate, list, show and wait, follow, cancel, answer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse

from postroom.control import sse
from postroom.control.bodies import AnswerBody, CancelBody, TaskBody
from postroom.control.hot_routes import hot
from postroom.control.in_flight import acted_on
from postroom.control.parts import Parts
from postroom.control.principals import Caller, needs
from postroom.control.task_trouble import troubles
from postroom.projection.changes import BUS, WORKERS, Change, of_task
from postroom.protocol.limits import LONGEST_WAIT, MAX_PAGE
from postroom.protocol.principal import Scope
from postroom.tasks.views import Known, TaskEvent, event
from postroom_a2a.task_state import TaskState

Limit = Annotated[int, Query(ge=1, le=MAX_PAGE)]
Sequence = Annotated[int, Query(ge=0)]
Seconds = Annotated[float, Query(ge=0, le=LONGEST_WAIT)]
Open = Annotated[bool | None, Query(alias="open")]


def router(parts: Parts) -> APIRouter:
    """The routes."""
    routes = APIRouter(prefix="/tasks")
    tasks = parts.tasks

    @routes.post("", status_code=201)
    @hot
    @needs(Scope.TASK)
    async def delegate(body: TaskBody, me: Caller) -> Mapping[str, Any]:
        said = body.content
        if body.context and not said.thread:
            said = replace(said, thread=body.context)
        view = await parts.assigner.delegate(
            me.uid, to=body.to, skill=body.skill, said=said, key=body.key
        )
        acted_on(task=view.id)
        return view.as_json()

    @routes.get("")
    @needs(Scope.READ)
    async def listing(
        me: Caller,
        state: TaskState | None = None,
        worker: str = "",
        requester: str = "",
        limit: Limit = 50,
        before: Sequence = 0,
        *,
        open_only: Open = None,
    ) -> dict[str, Any]:
        found = await tasks.listed(
            worker=await parts.uid_of(worker),
            requester=await parts.uid_of(requester),
            states=() if state is None else (state,),
            open_only=open_only,
            limit=limit,
            before=before,
            only=me.only,
        )
        return {"tasks": [view.as_json() for view in found]}

    @routes.get("/{task}")
    @hot
    @needs(Scope.READ)
    async def show(
        task: str,
        me: Caller,
        wait: Literal["", "final", "settled", "changed"] = "",
        after: Sequence = 0,
        timeout: Seconds = 30.0,
    ) -> Mapping[str, Any]:
        if not wait:
            return (await tasks.get(task, me.only)).as_json()
        if wait == "changed":
            return (await tasks.reached(task, after + 1, timeout, me.only)).as_json()
        return (await tasks.wait(task, timeout, settled=wait == "settled", only=me.only)).as_json()

    @routes.get("/{task}/events")
    @hot
    @needs(Scope.READ)
    async def events(
        task: str, me: Caller, after: Sequence = 0, limit: Limit = 50
    ) -> dict[str, Any]:
        found = await tasks.events(task, after=after, limit=limit, only=me.only)
        return {"events": [event.as_json() for event in found]}

    @routes.get("/{task}/stream")
    @hot
    @needs(Scope.READ)
    async def stream(task: str, me: Caller, after: Sequence = 0) -> StreamingResponse:
        named = (await tasks.find(task, me.only)).id
        headers = {"Cache-Control": "no-store"}
        updates = _updates(parts, named, after)
        return StreamingResponse(updates, media_type="text/event-stream", headers=headers)

    @routes.post("/{task}/cancel")
    @needs(Scope.TASK)
    async def cancel(task: str, me: Caller, body: CancelBody | None = None) -> Mapping[str, Any]:
        wish = body or CancelBody()
        view = await tasks.cancel(
            task, me.uid, reason=wish.reason, timeout=wish.timeout, only=me.only
        )
        acted_on(task=view.id)
        return view.as_json()

    @routes.post("/{task}/answer")
    @needs(Scope.TASK)
    async def answer(task: str, body: AnswerBody, me: Caller) -> Mapping[str, Any]:
        view = await tasks.answer(task, me.uid, body.content, only=me.only)
        acted_on(task=view.id)
        return view.as_json()

    return routes


def _updates(parts: Parts, task: str, after: int) -> AsyncIterator[str]:
    """The changes of a task until its end, from one read and from what the fold brings."""
    known: Known | None = None
    waiting: tuple[int, list[TaskEvent]] | None = None

    async def read(past: int) -> list[TaskEvent]:
        nonlocal known, waiting
        page, waiting = waiting, None
        if page is None or page[0] != past:
            known, found = await parts.tasks.course(task, past, sse.PAGE)
            return found
        return page[1]

    async def now() -> Known:
        nonlocal known, waiting
        if known is None:
            known, found = await parts.tasks.course(task, after, sse.PAGE)
            waiting = after, found
        return known

    def brought(change: Change) -> TaskEvent | None:
        nonlocal known
        if known is None or change.event is None:
            return None
        known = known.then(change)
        return event(change.event, change.row)

    def ended(past: int) -> bool:
        return known is not None and known.row.final and known.row.seq <= past

    topics = (of_task(task), WORKERS, BUS)
    show = troubles(parts.tasks.blocker, parts.bus, now)
    return sse.follow(parts.changes, topics, "update", after, read, show, ended, brought)
