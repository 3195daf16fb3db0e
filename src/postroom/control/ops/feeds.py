"""Projects' feeds, and live views of feeds, chats and everything."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any

from pydantic import Field
from starlette.responses import StreamingResponse

from postroom.control import event_stream, project_events, sse
from postroom.control.bodies import PostBody
from postroom.control.in_flight import acted_on
from postroom.control.ops.table import STORING, Operations
from postroom.control.parameters import After, Before, Limit, ProjectRef, Ref, SearchText, next_page
from postroom.control.parts import Parts
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


OfProject = Annotated[str, Field(description="The name of a project.")]
Cursor = Annotated[str, Field(description="The `id:` of the last event that was read.")]
Earlier = Annotated[
    str, Field(description="Only what is older: the `next` of another page; the newest without it.")
]


operations = Operations()


@operations.get("/v1/projects", Scope.READ)
async def projects(parts: Parts) -> answers.Projects:
    """List the projects."""
    return {"projects": await parts.office.projects(), "next": None}


@operations.get("/v1/projects/{project}/posts", Scope.READ)
async def posts(
    parts: Parts, project: ProjectRef, text: SearchText = "", limit: Limit = 50, before: Before = 0
) -> answers.Posts:
    """Read the posts of a project, the oldest first; with `text` those that have it.

    Without `before` they are the newest ones.
    """
    check_name(project, "project")
    if text.strip():
        found = await parts.office.search_posts(project, text, limit=limit, before=before)
    else:
        found = await parts.office.posts(project, limit=limit, before=before)
    older = next_page(found[::-1], limit, lambda post: post.seq)
    return {"posts": [post.as_json() for post in found], "next": older}


@operations.get("/v1/projects/{project}/events", Scope.OPERATE)
async def happened(
    parts: Parts, project: ProjectRef, limit: Limit = 50, before: Earlier = ""
) -> answers.ProjectEvents:
    """Read the newest posts of a project and what happened beside them, oldest first.

    Who joined and left, took a task, asked and ended, what was to be approved, and what failed.
    """
    end = project_events.ProjectCursor.parse(before) if before else None
    return await project_events.newest(parts, check_name(project, "project"), limit, end)


@operations.get(
    "/v1/projects/{project}/events/stream",
    Scope.OPERATE,
    events={"open": dict[str, Any], "post": shapes.Post, "activity": shapes.Activity},
)
async def happens(parts: Parts, project: ProjectRef, after: Cursor = "") -> StreamingResponse:
    """Follow the posts of a project and what happens beside them.

    From now on, or past `after`: the `id:` of an event, or the `after` of what was read. The first event is `open`.
    """
    cursor = project_events.ProjectCursor.parse(after) if after else None
    found = project_events.follow(parts, check_name(project, "project"), cursor)
    headers = {"Cache-Control": "no-store"}
    return sse.response(found, headers)


@operations.post("/v1/projects/{project}/posts", Scope.SEND, status=201, fails=(Conflict, *STORING))
async def post(parts: Parts, project: ProjectRef, body: PostBody, me: Principal) -> shapes.Post:
    """Post to a project.

    A post with a `key` can be repeated: it is the same post.
    """
    posted = await parts.office.post(me.uid, project, body.content, key=body.key)
    acted_on(message=posted.id)
    return posted.as_json()


@operations.get(
    "/v1/stream",
    Scope.READ,
    fails=(NotFound,),
    events={"post": shapes.Post, "mail": shapes.Mail, "receipt": shapes.Mail},
)
async def stream(
    parts: Parts, me: Principal, project: OfProject = "", chat: Ref = "", after: After = 0
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


@operations.get("/v1/events", Scope.OPERATE, events=EVENTS)
async def events(parts: Parts, me: Principal, after: Cursor = "") -> StreamingResponse:
    """Follow everything that happens in the organisation.

    From now on, or past `after`, the `id:` of an event that was read before. The first event is `open`.
    """
    found = event_stream.everything(
        parts, me, event_stream.EventCursor.parse(after) if after else None
    )
    headers = {"Cache-Control": "no-store"}
    return sse.response(found, headers)


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
