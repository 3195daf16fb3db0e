"""Codes with which the owner of an agent claims a key for it: what the agent asks for, it does not get itself."""

from __future__ import annotations

import secrets

from postroom.control.bodies import ClaimBody, CodeBody
from postroom.control.in_flight import acted_on
from postroom.control.ops.keys import told
from postroom.control.ops.table import ANY_KEY, Operations
from postroom.control.parts import Parts
from postroom.directory.claims import Offer
from postroom.directory.iam import NewKey
from postroom.directory.outside import KINDS
from postroom.directory.sessions import Registration
from postroom.errors import Conflict, Forbidden, NotFound, PostroomError, Refused
from postroom.protocol import shapes
from postroom.protocol.ids import check_nick
from postroom.protocol.principal import KEY, Principal, Scope
from postroom_a2a.times import format_time

CLIENT = "mcp"
"""Client of a session that an agent has asked for."""

operations = Operations()


@operations.post("/v1/keys/codes", ANY_KEY, status=201)
async def offer(parts: Parts, body: CodeBody, me: Principal) -> shapes.KeyCode:
    """Ask for a code with which the caller's owner claims a new key.

    It is for the caller, in place of its key, or with `nick` for a new agent. It opens nothing by itself, counts once
    and for five minutes, and a later code of the caller takes its place.
    """
    if me.kind not in KINDS or me.method != KEY:
        raise Forbidden(
            f"@{me.nick} is a {me.kind}: codes are for agents that Postroom does not run",
            remedy="postroom keys",
        )
    parts.gate.limits.making(me)
    nick = check_nick(body.nick.removeprefix("@")) if body.nick else ""
    code, made = parts.claims.offer(me.uid, me.key_id, nick)
    acted_on(about=me.uid)
    return {"code": code, "expires_at": format_time(made.expires)}


@operations.post("/v1/keys/claim", ANY_KEY, status=201, fails=(NotFound, Conflict, Refused))
async def claim(parts: Parts, body: ClaimBody, me: Principal) -> shapes.NewKey:
    """Claim the key that an agent has asked for.

    By the person who owns it: of a session that is who registered it, of any other agent who administers. A new agent
    is a session of theirs. The secret is in this answer and in no other.
    """
    parts.gate.limits.making(me)
    code = body.code.get_secret_value()
    taken = parts.claims.take(code, lambda offer: _owns(parts, me, offer))
    try:
        made = await _made(parts, me, taken)
    except PostroomError:
        parts.claims.give_back(code, taken)
        raise
    return await told(parts, made)


def _owns(parts: Parts, me: Principal, offer: Offer) -> bool:
    if me.kind != "human" or me.method != KEY:
        return False
    session = parts.sessions.of(offer.uid)
    return session.owner == me.uid if session is not None else me.allows(Scope.ADMIN)


async def _made(parts: Parts, me: Principal, offer: Offer) -> NewKey:
    asker = await parts.database.point(lambda store: store.keys.get(offer.key_id))
    if asker is None or asker.revoked_at is not None:
        raise Conflict("the key of the agent that has asked was revoked")
    if offer.nick:
        said = Registration(CLIENT, secrets.token_hex(16), offer.nick)
        return (await parts.sessions.register(me, said)).key
    if parts.sessions.of(offer.uid) is None:
        return await parts.iam.rotate_key(me, offer.key_id)
    made, ended = await parts.database.write(
        lambda store: parts.iam.session_key(store, me, offer.uid)
    )
    parts.iam.cut(ended)
    return made
