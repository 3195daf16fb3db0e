"""Projects' feeds, and live views of feeds, chats and everything."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from pydantic import Field
from starlette.responses import StreamingResponse

from postroom.control.bodies import PostBody, ReadBody
from postroom.control.in_flight import acted_on
from postroom.control.ops.table import STORING, Operations
from postroom.control.parameters import After, Before, Limit, ProjectRef, Ref, SearchText, next_page
from postroom.control.parts import Parts
from postroom.errors import Conflict, InvalidInput, NotFound
from postroom.feed.events import streamed
from postroom.feed.everything import ALERTS_READ, EventCursor, EverythingFeed, Moment
from postroom.feed.project import ProjectCursor, ProjectFeed, newest
from postroom.feed.records import ChatFeed
from postroom.feed.records import posts as posts_of
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


@operations.get("/v1/feeds", Scope.READ)
async def unread(parts: Parts, me: Principal) -> answers.Feeds:
    """List the feeds of the projects, with how many posts the caller has not read."""
    return {"feeds": await parts.office.feeds(me.uid), "next": None}


@operations.post("/v1/projects/{project}/read", Scope.SEND)
async def read(
    parts: Parts, project: ProjectRef, me: Principal, body: ReadBody | None = None
) -> shapes.Feed:
    """Note how far the caller has read the posts of a project.

    Up to `seq`, or all that there are. A mark never goes back.
    """
    seq = (body or ReadBody()).seq
    return await parts.office.read_feed(me.uid, check_name(project, "project"), seq)


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
    end = ProjectCursor.parse(before) if before else None
    return await newest(parts.database, check_name(project, "project"), limit, end)


@operations.get(
    "/v1/projects/{project}/events/stream",
    Scope.OPERATE,
    events={"open": dict[str, Any], "post": shapes.Post, "activity": shapes.Activity},
)
async def happens(parts: Parts, project: ProjectRef, after: Cursor = "") -> StreamingResponse:
    """Follow the posts of a project and what happens beside them.

    From now on, or past `after`: the `id:` of an event, or the `after` of what was read. The first event is `open`.
    """
    cursor = ProjectCursor.parse(after) if after else None
    feed = ProjectFeed(parts.changes, parts.database, check_name(project, "project"))
    return streamed(feed, cursor)


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
        feed = posts_of(parts.changes, parts.office, check_name(project, "project"))
    else:
        other = (await parts.directory.known(chat)).uid
        feed = ChatFeed(parts.changes, parts.office, me.uid, other)
    return streamed(feed, after)


@operations.get("/v1/events", Scope.OPERATE, events=EVENTS)
async def events(parts: Parts, me: Principal, after: Cursor = "") -> StreamingResponse:
    """Follow everything that happens in the organisation.

    From now on, or past `after`, the `id:` of an event that was read before. The first event is `open`.
    """
    look = partial(moment, parts, me)
    feed = EverythingFeed(parts.changes, parts.database, me.uid, parts.tasks.blocker, look)
    return streamed(feed, EventCursor.parse(after) if after else None)


async def moment(parts: Parts, me: Principal) -> Moment:
    """How things are now for who watches."""
    standing = await parts.alerts.standing(ALERTS_READ)
    unread = await parts.office.unread([me.uid])
    room: shapes.RoomChange = {
        "inbox": unread.get(me.uid, 0),
        "deadletters": await parts.deadletters.count(me.only),
        "alerts": len(standing),
        "bus": parts.bus.statistics().connected,
    }
    return Moment(standing, await parts.views.states(), room)
