"""Agents, their Agent Cards, and the key that signs the cards."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from postroom.control.bodies import AgentBody, NickBody, OwnerBody, RemoteBody
from postroom.control.in_flight import acted_on
from postroom.control.ops.keys import expiry, told
from postroom.control.ops.table import ANYONE, Operations
from postroom.control.parameters import AgentRef, Skill, Words
from postroom.control.parts import Parts
from postroom.control.pinned import PIN, check_key
from postroom.directory.sessions import commands
from postroom.errors import Conflict, NotFound, PeerError, Refused
from postroom.protocol import answers, shapes
from postroom.protocol.principal import USUAL_SCOPES, Principal, Scope

JWKS = "/.well-known/jwks.json"
"""Where verifiers look for public keys, below the address of an organisation."""

Kind = Annotated[
    Literal["", "human", "worker", "external", "service"],
    Field(description="Only agents of this kind."),
]


operations = Operations()


@operations.get("/v1/agents", Scope.READ, strangers=True)
async def list_(
    parts: Parts, me: Principal, skill: Skill = "", text: Words = "", kind: Kind = ""
) -> answers.Agents:
    """List everybody with an address.

    With `skill` (id, name or tag) or `text` those whose Agent Card has it.
    """
    return {"agents": await parts.search.find(skill, text, kind, me), "next": None}


@operations.post("/v1/agents", Scope.ADMIN, status=201, fails=(Conflict, Refused, *PIN))
async def add(parts: Parts, body: AgentBody, me: Principal) -> shapes.NewAgent:
    """Give an agent that Postroom does not run an address, an inbox and a first key.

    The secret of the key is in this answer and in no other. With a PIN set, it is needed for a key with `operate`
    or `admin`.
    """
    await check_key(parts, me, body.scopes, body.pin)
    nick = body.nick.removeprefix("@")
    agent = await parts.outside.add(nick, body.kind, body.card, public=body.public)
    acted_on(about=agent.uid)
    scopes = frozenset(body.scopes) or USUAL_SCOPES
    made = await parts.iam.create_key(
        me, agent.uid, scopes=scopes, expires_at=expiry(body.expires_in)
    )
    return {**await parts.search.entry(agent.uid), "key": await told(parts, made)}


@operations.post(
    "/v1/agents/remote", Scope.ADMIN, status=201, fails=(NotFound, Conflict, PeerError)
)
async def add_remote(parts: Parts, body: RemoteBody) -> shapes.RemoteListed:
    """Give an agent of other people, an A2A server, an address and an inbox.

    Its card at `url` is read; from then on tasks for it go there. One that was added with that URL before stays
    as it is.
    """
    known = parts.remotes.at(body.url) if not body.nick else None
    if known is not None:
        return await _told_remote(parts, known.uid, added=False)
    agent = await parts.remotes.add(
        body.url,
        nick=body.nick.removeprefix("@"),
        credential=body.credential,
        deadline=body.deadline,
    )
    acted_on(about=agent.uid)
    parts.remote_work.reached(agent.uid, there=True)
    return await _told_remote(parts, agent.uid, added=True)


@operations.get("/v1/agents/{ref}/remote", Scope.READ, fails=(NotFound,))
async def show_remote(parts: Parts, ref: AgentRef) -> shapes.RemoteListed:
    """Show where and how an agent of other people is called."""
    return await _told_remote(parts, (await parts.directory.resolve(ref)).uid, added=False)


async def _told_remote(parts: Parts, uid: str, *, added: bool) -> shapes.RemoteListed:
    shown = parts.remotes.of(uid).as_json()
    return {**await parts.search.entry(uid), "remote": shown, "added": added}


@operations.get("/v1/agents/{ref}", Scope.READ, fails=(NotFound,), strangers=True)
async def show(parts: Parts, ref: AgentRef, me: Principal) -> shapes.Listed:
    """Show an agent."""
    entry = await parts.search.entry(ref, me)
    if me.allows(Scope.ADMIN) and (email := await parts.joining.email(entry["uid"])):
        return {**entry, "unverified_email": email}
    return entry


@operations.post("/v1/agents/{ref}/rename", Scope.SEND, fails=(NotFound, Conflict))
async def rename(parts: Parts, ref: AgentRef, body: NickBody, me: Principal) -> shapes.Me:
    """Give an agent that Postroom does not run another nick.

    The nick before is free at once; the uid is the address that lasts. Who administers may, and of a session its owner
    and the session itself.
    """
    agent = await parts.outside.resolve(ref)
    session = parts.sessions.of(agent.uid)
    if session is None or not commands(me, session):
        me.require(Scope.ADMIN)
    renamed = await parts.sessions.rename(agent, body.nick.removeprefix("@"))
    acted_on(about=agent.uid)
    return {"uid": renamed.uid, "nick": renamed.nick}


@operations.put("/v1/agents/{ref}/owner", Scope.ADMIN, fails=(NotFound, Conflict))
async def give(parts: Parts, ref: AgentRef, body: OwnerBody, me: Principal) -> shapes.Me:
    """Let an agent belong to a person.

    The person's grants cover it, and who owns it answers for it. Without `owner` it belongs to nobody. What its owner
    before has let in for it ends.
    """
    agent = await parts.grants.give(me, ref, body.owner)
    acted_on(about=agent.uid)
    return {"uid": agent.uid, "nick": agent.nick}


@operations.delete("/v1/agents/{ref}", Scope.ADMIN, fails=(NotFound, Conflict))
async def remove(parts: Parts, ref: AgentRef, me: Principal) -> shapes.Me:
    """Remove an agent that Postroom does not run.

    Its keys are revoked, its tasks fail, and what waits for it becomes dead letters.
    """
    agent = await parts.outside.resolve(ref)
    left = await parts.grants.leaving(agent.uid)
    await parts.iam.retire(me, agent.uid)
    await left()
    acted_on(about=agent.uid)
    await parts.outside.forget(agent.uid)
    await parts.sessions.forget(agent.uid)
    await parts.sweep()  # what waits for it ends, and whoever waits hears of that
    return {"uid": agent.uid, "nick": agent.nick}


@operations.get("/v1/agents/{ref}/card", Scope.READ, fails=(NotFound,), strangers=True)
async def card(parts: Parts, ref: AgentRef, me: Principal) -> shapes.Card:
    """Show the Agent Card of an agent.

    It is an A2A 1.0 Agent Card, signed; 404 for an agent without one.
    """
    return (await parts.search.get(ref, me))["card"] or {}


@operations.put("/v1/agents/{ref}/card", Scope.SEND, fails=(NotFound,), strangers=True)
async def set_card(parts: Parts, ref: AgentRef, card: dict[str, Any], me: Principal) -> shapes.Card:
    """Replace the Agent Card of an agent that Postroom does not run.

    The agent itself may, and who administers.
    """
    agent = await parts.outside.resolve(ref)
    if agent.uid != me.uid:
        me.require(Scope.ADMIN)
    await parts.outside.set_card(agent.uid, card)
    acted_on(about=agent.uid)
    return (await parts.search.get(agent.uid))["card"] or {}


@operations.get(JWKS, ANYONE)
async def keys(parts: Parts) -> answers.CardKeys:
    """Show the keys that Agent Cards and pushes are signed with.

    A JWK set; no key is needed, since a verifier of cards has none.
    """
    return {"keys": [parts.trust.card_key.jwk, parts.pushes.key.jwk]}
