"""Agents, their Agent Cards, and the key that signs the cards."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Query

from postroom.control.bodies import AgentBody, RemoteBody
from postroom.control.described import fails
from postroom.control.in_flight import acted_on
from postroom.control.parameters import AgentRef, Skill, Words
from postroom.control.parts import Parts
from postroom.control.pinned import PIN, check_key
from postroom.control.principals import Caller, anyone, needs
from postroom.control.routes.keys import expiry, told
from postroom.control.routing import Routes
from postroom.errors import Conflict, NotFound, PeerError, Refused
from postroom.protocol import answers, shapes
from postroom.protocol.principal import USUAL_SCOPES, Scope

JWKS = "/.well-known/jwks.json"
"""Where verifiers look for public keys, below the address of an organisation."""

Kind = Annotated[
    Literal["", "human", "worker", "external", "service"],
    Query(description="Only agents of this kind."),
]


def router(parts: Parts) -> Routes:
    """The routes."""
    routes = Routes(prefix="/agents")
    search, outside, remotes = parts.search, parts.outside, parts.remotes

    @routes.get("")
    @needs(Scope.READ)
    async def agents(skill: Skill = "", text: Words = "", kind: Kind = "") -> answers.Agents:
        """List everybody with an address.

        With `skill` (id, name or tag) or `text` those whose Agent Card has it.
        """
        return {"agents": await search.find(skill, text, kind), "next": None}

    @routes.post("", status_code=201)
    @needs(Scope.ADMIN)
    @fails(Conflict, Refused, *PIN)
    async def add(body: AgentBody, me: Caller) -> shapes.NewAgent:
        """Give an agent that Postroom does not run an address, an inbox and a first key.

        The secret of the key is in this answer and in no other. With a PIN set, it is needed for a key with `operate`
        or `admin`.
        """
        await check_key(parts, me, body.scopes, body.pin)
        nick = body.nick.removeprefix("@")
        agent = await outside.add(nick, body.kind, body.card, public=body.public)
        acted_on(about=agent.uid)
        scopes = frozenset(body.scopes) or USUAL_SCOPES
        made = await parts.iam.create_key(
            me, agent.uid, scopes=scopes, expires_at=expiry(body.expires_in)
        )
        return {**await search.entry(agent.uid), "key": await told(parts, made)}

    @routes.post("/remote", status_code=201)
    @needs(Scope.ADMIN)
    @fails(NotFound, Conflict, PeerError)
    async def add_remote(body: RemoteBody) -> shapes.RemoteListed:
        """Give an agent of other people, an A2A server, an address and an inbox.

        Its card at `url` is read; from then on tasks for it go there. One that was added with that URL before stays
        as it is.
        """
        known = remotes.at(body.url) if not body.nick else None
        if known is not None:
            return await told_remote(known.uid, added=False)
        agent = await remotes.add(
            body.url,
            nick=body.nick.removeprefix("@"),
            credential=body.credential,
            deadline=body.deadline,
        )
        acted_on(about=agent.uid)
        parts.remote_work.reached(agent.uid, there=True)
        return await told_remote(agent.uid, added=True)

    @routes.get("/{ref}/remote")
    @needs(Scope.READ)
    @fails(NotFound)
    async def show_remote(ref: AgentRef) -> shapes.RemoteListed:
        """Show where and how an agent of other people is called."""
        return await told_remote((await parts.directory.resolve(ref)).uid, added=False)

    async def told_remote(uid: str, *, added: bool) -> shapes.RemoteListed:
        shown = remotes.of(uid).as_json()
        return {**await search.entry(uid), "remote": shown, "added": added}

    @routes.get("/{ref}")
    @needs(Scope.READ)
    @fails(NotFound)
    async def show(ref: AgentRef) -> shapes.Listed:
        """Show an agent."""
        return await search.entry(ref)

    @routes.delete("/{ref}")
    @needs(Scope.ADMIN)
    @fails(NotFound, Conflict)
    async def remove(ref: AgentRef, me: Caller) -> shapes.Me:
        """Remove an agent that Postroom does not run.

        Its keys are revoked, its tasks fail, and what waits for it becomes dead letters.
        """
        agent = await outside.resolve(ref)
        await parts.iam.retire(me, agent.uid)
        acted_on(about=agent.uid)
        await outside.forget(agent)
        await parts.sweep()  # what waits for it ends, and whoever waits hears of that
        return {"uid": agent.uid, "nick": agent.nick}

    @routes.get("/{ref}/card")
    @needs(Scope.READ)
    @fails(NotFound)
    async def card(ref: AgentRef) -> shapes.Card:
        """Show the Agent Card of an agent.

        It is an A2A 1.0 Agent Card, signed; 404 for an agent without one.
        """
        return (await search.get(ref))["card"] or {}

    @routes.put("/{ref}/card")
    @needs(Scope.SEND)
    @fails(NotFound)
    async def set_card(ref: AgentRef, card: dict[str, Any], me: Caller) -> shapes.Card:
        """Replace the Agent Card of an agent that Postroom does not run.

        The agent itself may, and who administers.
        """
        agent = await outside.resolve(ref)
        if agent.uid != me.uid:
            me.require(Scope.ADMIN)
        await outside.set_card(agent.uid, card)
        acted_on(about=agent.uid)
        return (await search.get(agent.uid))["card"] or {}

    return routes


def keys_router(parts: Parts) -> Routes:
    """The route of the public key: a verifier of cards has no API key."""
    routes = Routes()

    @routes.get(JWKS)
    @anyone
    async def keys() -> answers.CardKeys:
        """Show the keys that Agent Cards and pushes are signed with.

        A JWK set; no key is needed, since a verifier of cards has none.
        """
        return {"keys": [parts.trust.card_key.jwk, parts.pushes.key.jwk]}

    return routes
