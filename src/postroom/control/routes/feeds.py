"""Projects' feeds, and live views of feeds, chats and everything."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import Query
from fastapi.responses import StreamingResponse

from postroom.control import event_stream, project_events, sse
from postroom.control.bodies import PostBody
from postroom.control.described import STORING, fails, streams
from postroom.control.hot_routes import hot
from postroom.control.in_flight import acted_on
from postroom.control.parameters import After, Before, Limit, ProjectRef, Ref, SearchText, next_page
from postroom.control.parts import Parts
from postroom.control.principals import Caller, needs
from postroom.control.routing import Routes
from postroom.errors import Conflict, InvalidInput, NotFound, PostroomError
from postroom.mail.views import Mail
from postroom.projection.changes import Change, of_chat, of_project
from postroom.protocol import answers, shapes
from postroom.protocol.ids import check_name
from postroom.protocol.principal import Principal, Scope

EVENTS = {
    "open": dict[str, Any],
    "task": shapes.Task,
    "update": shapes.TaskNews,
    "mail": shapes.Mail,
    "post": shapes.Post,
    "alert": shapes.Alert,
    "approval": shapes.Approval,
    "worker": shapes.WorkerChange,
    "room": shapes.RoomChange,
}
"""The events of everything that happens, and the shape of the data of each."""


OfProject = Annotated[str, Query(description="The name of a project.")]
Cursor = Annotated[str, Query(description="The `id:` of the last event that was read.")]
Earlier = Annotated[
    str, Query(description="Only what is older: the `next` of another page; the newest without it.")
]


def router(parts: Parts) -> Routes:
    """The routes."""
    routes = Routes()
    office = parts.office

    @routes.get("/projects")
    @needs(Scope.READ)
    async def projects() -> answers.Projects:
        """List the projects."""
        return {"projects": await office.projects(), "next": None}

    @routes.get("/projects/{project}/posts")
    @needs(Scope.READ)
    async def posts(
        project: ProjectRef, text: SearchText = "", limit: Limit = 50, before: Before = 0
    ) -> answers.Posts:
        """Read the posts of a project, the oldest first; with `text` those that have it.

        Without `before` they are the newest ones.
        """
        check_name(project, "project")
        if text.strip():
            found = await office.search_posts(project, text, limit=limit, before=before)
        else:
            found = await office.posts(project, limit=limit, before=before)
        older = next_page(found[::-1], limit, lambda post: post.seq)
        return {"posts": [post.as_json() for post in found], "next": older}

    @routes.get("/projects/{project}/events")
    @needs(Scope.OPERATE)
    async def happened(
        project: ProjectRef, limit: Limit = 50, before: Earlier = ""
    ) -> answers.ProjectEvents:
        """Read the newest posts of a project and what happened beside them, oldest first.

        Who joined and left, took a task, asked and ended, what was to be approved, and what failed.
        """
        end = project_events.ProjectCursor.parse(before) if before else None
        return await project_events.newest(parts, check_name(project, "project"), limit, end)

    @routes.get("/projects/{project}/events/stream")
    @needs(Scope.OPERATE)
    @streams(open=dict[str, Any], post=shapes.Post, activity=shapes.Activity)
    async def happens(project: ProjectRef, after: Cursor = "") -> StreamingResponse:
        """Follow the posts of a project and what happens beside them.

        From now on, or past `after`: the `id:` of an event, or the `after` of what was read. The first event is `open`.
        """
        cursor = project_events.ProjectCursor.parse(after) if after else None
        found = project_events.follow(parts, check_name(project, "project"), cursor)
        headers = {"Cache-Control": "no-store"}
        return sse.response(found, headers)

    @routes.post("/projects/{project}/posts", status_code=201)
    @needs(Scope.SEND)
    @fails(Conflict, *STORING)
    async def post(project: ProjectRef, body: PostBody, me: Caller) -> shapes.Post:
        """Post to a project.

        A post with a `key` can be repeated: it is the same post.
        """
        posted = await office.post(me.uid, project, body.content, key=body.key)
        acted_on(message=posted.id)
        return posted.as_json()

    @routes.get("/stream")
    @hot
    @needs(Scope.READ)
    @fails(NotFound)
    @streams(post=shapes.Post, mail=shapes.Mail, receipt=shapes.Mail)
    async def stream(
        me: Caller, project: OfProject = "", chat: Ref = "", after: After = 0
    ) -> StreamingResponse:
        """Follow a project or a chat.

        Of a project (`project`) events `post`; of a chat (`chat`, an agent) events `mail`, and `receipt` for a message
        that has another state. `id:` is the sequence to come back with.
        """
        if bool(project) == bool(chat):
            raise InvalidInput(
                "a stream is of one project or one chat", remedy="?project=ID or ?chat=@NICK"
            )
        if project:
            events = _project_events(parts, check_name(project, "project"), after)
        else:
            events = _chat_events(parts, me, (await parts.directory.resolve(chat)).uid, after)
        headers = {"Cache-Control": "no-store"}
        return sse.response(events, headers)

    @routes.get("/events")
    @hot
    @needs(Scope.OPERATE)
    @streams(**EVENTS)
    async def events(me: Caller, after: Cursor = "") -> StreamingResponse:
        """Follow everything that happens in the organisation.

        From now on, or past `after`, the `id:` of an event that was read before. The first event is `open`.
        """
        found = event_stream.everything(
            parts, me, event_stream.EventCursor.parse(after) if after else None
        )
        headers = {"Cache-Control": "no-store"}
        return sse.response(found, headers)

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
            return "receipt", await parts.office.get(change.id, me.uid)
        except PostroomError:
            return None  # the message was deleted since

    return sse.follow(parts.changes, [of_chat(me.uid, other)], "mail", after, read, show)
