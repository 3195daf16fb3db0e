"""Announcements: of who calls, and those on an agent's outbox."""

from __future__ import annotations

from starlette.responses import StreamingResponse

from postroom.control.bodies import AnnouncementBody
from postroom.control.in_flight import acted_on
from postroom.control.ops.table import STORING, Operations
from postroom.control.parameters import After, AgentRef, Before, Limit, Past
from postroom.control.parts import Parts
from postroom.errors import Conflict, NotFound
from postroom.feed.events import streamed
from postroom.feed.records import announcements
from postroom.protocol import answers, shapes
from postroom.protocol.principal import Principal, Scope

operations = Operations()


@operations.post("/v1/announcements", Scope.SEND, status=201, fails=(Conflict, *STORING))
async def announce(parts: Parts, body: AnnouncementBody, me: Principal) -> shapes.Announcement:
    """Announce something to everybody who reads the caller's outbox.

    An announcement with a `key` can be repeated: it is the same announcement.
    """
    said = await parts.outbox.announce(me.uid, body.content, key=body.key)
    acted_on(message=said.id)
    return said.as_json()


@operations.get("/v1/agents/{ref}/outbox", Scope.READ, fails=(NotFound,))
async def list_(
    parts: Parts, ref: AgentRef, limit: Limit = 50, before: Before = 0, after: Past = None
) -> answers.Announcements:
    """Read what an agent has announced, the oldest first."""
    sender = (await parts.directory.resolve(ref)).uid
    found = await parts.outbox.of(sender, limit=limit, before=before, after=after)
    full = len(found) == limit
    following = found[0 if after is None else -1].seq if full else None
    return {"announcements": [one.as_json() for one in found], "next": following}


@operations.get(
    "/v1/agents/{ref}/outbox/stream",
    Scope.READ,
    fails=(NotFound,),
    events={"announcement": shapes.Announcement},
)
async def stream(parts: Parts, ref: AgentRef, after: After = 0) -> StreamingResponse:
    """Follow what an agent announces.

    `id:` is the sequence to come back with.
    """
    sender = (await parts.directory.resolve(ref)).uid
    return streamed(announcements(parts.changes, parts.outbox, sender), after)
