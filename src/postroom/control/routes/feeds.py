"""Projects' feeds, and live views of feeds, chats and everything."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse

from postroom.control import event_stream, sse
from postroom.control.bodies import PostBody
from postroom.control.hot_routes import hot
from postroom.control.in_flight import acted_on
from postroom.control.parts import Parts
from postroom.control.principals import Caller, needs
from postroom.errors import InvalidInput, PostroomError
from postroom.mail.views import Mail
from postroom.projection.changes import Change, of_chat, of_project
from postroom.protocol.ids import check_name
from postroom.protocol.limits import MAX_PAGE
from postroom.protocol.principal import Principal, Scope

Limit = Annotated[int, Query(ge=1, le=MAX_PAGE)]
Sequence = Annotated[int, Query(ge=0)]


def router(parts: Parts) -> APIRouter:
    """The routes."""
    routes = APIRouter()
    office = parts.office

    @routes.get("/projects")
    @needs(Scope.READ)
    async def projects() -> dict[str, Any]:
        return {"projects": await office.projects()}

    @routes.get("/projects/{project}/posts")
    @needs(Scope.READ)
    async def posts(project: str, limit: Limit = 50, before: Sequence = 0) -> dict[str, Any]:
        check_name(project, "project")
        found = await office.posts(project, limit=limit, before=before)
        return {"posts": [post.as_json() for post in found]}

    @routes.post("/projects/{project}/posts", status_code=201)
    @needs(Scope.SEND)
    async def post(project: str, body: PostBody, me: Caller) -> dict[str, Any]:
        posted = await office.post(me.uid, project, body.content, key=body.key)
        acted_on(message=posted.id)
        return posted.as_json()

    @routes.get("/stream")
    @hot
    @needs(Scope.READ)
    async def stream(
        me: Caller, project: str = "", chat: str = "", after: Sequence = 0
    ) -> StreamingResponse:
        if bool(project) == bool(chat):
            raise InvalidInput(
                "a stream is of one project or one chat", remedy="?project=ID or ?chat=@NICK"
            )
        if project:
            events = _project_events(parts, check_name(project, "project"), after)
        else:
            events = _chat_events(parts, me, (await parts.directory.resolve(chat)).uid, after)
        headers = {"Cache-Control": "no-store"}
        return StreamingResponse(events, media_type="text/event-stream", headers=headers)

    @routes.get("/events")
    @hot
    @needs(Scope.OPERATE)
    async def events(me: Caller, after: str = "") -> StreamingResponse:
        found = event_stream.everything(
            parts, me, event_stream.EventCursor.parse(after) if after else None
        )
        headers = {"Cache-Control": "no-store"}
        return StreamingResponse(found, media_type="text/event-stream", headers=headers)

    return routes


def _project_events(parts: Parts, project: str, after: int) -> AsyncIterator[str]:
    async def read(past: int) -> list[Any]:
        if past == 0:
            return await parts.office.posts(project, limit=sse.PAGE)
        return await parts.office.posts(project, limit=sse.PAGE, after=past)

    return sse.follow(parts.changes, [of_project(project)], "post", after, read)


def _chat_events(parts: Parts, me: Principal, other: str, after: int) -> AsyncIterator[str]:
    async def read(past: int) -> list[Any]:
        if past == 0:
            return await parts.office.chat(me.uid, other, limit=sse.PAGE)
        return await parts.office.chat(me.uid, other, limit=sse.PAGE, after=past)

    async def show(change: Change) -> tuple[str, Mail] | None:
        try:
            return "receipt", await parts.office.get(change.id)
        except PostroomError:
            return None  # the message was deleted since

    return sse.follow(parts.changes, [of_chat(me.uid, other)], "mail", after, read, show)
