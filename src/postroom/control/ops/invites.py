"""How agents and people of others come in: invites, and who joins by one."""

from __future__ import annotations

from collections.abc import Callable

from starlette.requests import Request

from postroom.control.bodies import InviteBody, JoinBody
from postroom.control.http_protocol import PRINCIPAL
from postroom.control.in_flight import acted_on
from postroom.control.ops.keys import told
from postroom.control.ops.table import ANYONE, Operations
from postroom.control.parameters import InviteRef
from postroom.control.parts import Parts
from postroom.control.pinned import PIN, check_key
from postroom.control.statefile import Announcement
from postroom.directory.iam import scopes_of
from postroom.directory.joining import Joiner
from postroom.errors import Conflict, NotFound, NotInvited, Refused
from postroom.protocol import answers, shapes
from postroom.protocol.invites import Link
from postroom.protocol.origins import origin_of
from postroom.protocol.principal import KEY, USUAL_SCOPES, Principal, Scope
from postroom.settings import DEFAULT_ORG
from postroom.store.agents import Agent
from postroom.store.invites import InviteRow
from postroom_a2a.times import format_time

operations = Operations()


@operations.get("/v1/invites", Scope.ADMIN)
async def list_(parts: Parts) -> answers.Invites:
    """List the invites, the newest first, without their codes."""
    found = await parts.joining.invites()
    agents = {one.uid: one for one in await parts.directory.all(retired=True)}
    return {"invites": [_shown(parts, row, agents) for row in found], "next": None}


@operations.post("/v1/invites", Scope.ADMIN, status=201, fails=PIN)
async def create(
    parts: Parts, announcement: Callable[[], Announcement], body: InviteBody, me: Principal
) -> shapes.NewInvite:
    """Invite agents or people of others.

    The code is in this answer and in no other; who has link and code joins, so pass them on apart. With a PIN set, it
    is needed for keys with `operate` or `admin`.
    """
    scopes = frozenset(body.scopes) or USUAL_SCOPES
    await check_key(parts, me, scopes, body.pin)
    row, code = await parts.joining.invite(me, body.kind, scopes, body.uses, body.expires_in)
    acted_on(about=row.id)
    shown = _shown(parts, row, {me.uid: await parts.directory.get(me.uid)})
    return {**shown, "link": _link(parts, announcement(), row.id), "code": code}


@operations.delete("/v1/invites/{invite}", Scope.ADMIN, fails=(NotFound,))
async def revoke(parts: Parts, invite: InviteRef) -> shapes.Invite:
    """End an invite.

    Who has joined by it stays.
    """
    row = await parts.joining.end(invite)
    acted_on(about=row.id)
    agents = {one.uid: one for one in await parts.directory.all(retired=True)}
    return _shown(parts, row, agents)


@operations.post("/v1/join", ANYONE, status=201, fails=(NotInvited, Conflict, Refused))
async def join(parts: Parts, body: JoinBody, request: Request) -> shapes.Joined:
    """Join, by an invite or where the organisation is open to all.

    The secret of the key is in this answer; who asks again with the same `key` gets the same answer. Nobody checks
    `owner_email`, and nothing is sent there.
    """
    said = {"key": body.key.get_secret_value()} if body.key.get_secret_value() else {}
    done = await parts.joining.join(
        Joiner(
            body.display_name,
            body.invite,
            body.code.get_secret_value(),
            body.owner_email,
            body.card,
            **said,
        )
    )
    agent, key = done.agent, done.key
    # It is the first act of who has come in, and as such in the audit log.
    scopes = scopes_of(key.key.scopes)
    request.scope[PRINCIPAL] = Principal(
        agent.uid, agent.org, agent.nick, agent.kind, scopes, KEY, key.key.id
    )
    shown = await told(parts, key)
    acted_on(about=agent.uid)
    return {
        "uid": agent.uid,
        "nick": agent.nick,
        "org": agent.org,
        "kind": agent.kind,
        "joined": done.way,
        "key": shown,
    }


def _link(parts: Parts, announcement: Announcement, invite: str) -> str:
    """The link of an invite, at the first address of the post room that others can reach."""
    far = next((url for url in announcement.listen if url.startswith("http")), "")
    origin, tls = origin_of(far or announcement.url), announcement.tls
    # A proxy in front shows a certificate of its own.
    own = tls is not None and origin.scheme == "https" and not parts.settings.public_urls
    org = parts.directory.org
    pin = tls["authority"] if tls is not None and own else ""
    return Link(origin, "" if org == DEFAULT_ORG else org, invite, pin).url


def _shown(parts: Parts, row: InviteRow, agents: dict[str, Agent]) -> shapes.Invite:
    maker = agents.get(row.made_by)
    return {
        "id": row.id,
        "kind": row.kind,
        "scopes": row.scopes.split(),
        "uses": row.uses,
        "state": parts.joining.state(row),
        "made_by": maker.nick if maker else None,
        "created_at": format_time(row.made_at),
        "expires_at": format_time(row.expires_at),
    }
