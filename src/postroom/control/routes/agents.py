"""Agents, their Agent Cards, and the key that signs the cards."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query

from postroom.control.bodies import AgentBody
from postroom.control.in_flight import acted_on
from postroom.control.parts import Parts
from postroom.control.principals import Caller, anyone, needs
from postroom.control.routes.keys import expiry, told
from postroom.protocol.limits import MAX_LABEL
from postroom.protocol.principal import USUAL_SCOPES, Scope

JWKS = "/.well-known/jwks.json"
"""Where verifiers look for public keys, below the address of an organisation."""

Words = Annotated[str, Query(max_length=MAX_LABEL)]
Kind = Literal["", "human", "worker", "external", "service"]


def router(parts: Parts) -> APIRouter:
    """The routes."""
    routes = APIRouter(prefix="/agents")
    search, outside = parts.search, parts.outside

    @routes.get("")
    @needs(Scope.READ)
    async def agents(skill: Words = "", text: Words = "", kind: Kind = "") -> dict[str, Any]:
        return {"agents": await search.find(skill, text, kind)}

    @routes.post("", status_code=201)
    @needs(Scope.ADMIN)
    async def add(body: AgentBody, me: Caller) -> dict[str, Any]:
        agent = await outside.add(body.nick.removeprefix("@"), body.kind, body.card)
        acted_on(about=agent.uid)
        scopes = frozenset(body.scopes) or USUAL_SCOPES
        made = await parts.iam.create_key(
            me, agent.uid, scopes=scopes, expires_at=expiry(body.expires_in)
        )
        return await search.entry(agent.uid) | {"key": await told(parts, made)}

    @routes.get("/{ref}")
    @needs(Scope.READ)
    async def show(ref: str) -> dict[str, Any]:
        return await search.entry(ref)

    @routes.delete("/{ref}")
    @needs(Scope.ADMIN)
    async def remove(ref: str, me: Caller) -> dict[str, Any]:
        agent = await outside.resolve(ref)
        await parts.iam.retire(me, agent.uid)
        acted_on(about=agent.uid)
        await outside.forget(agent)
        await parts.sweep()  # what waits for it ends, and whoever waits hears of that
        return {"uid": agent.uid, "nick": agent.nick}

    @routes.get("/{ref}/card")
    @needs(Scope.READ)
    async def card(ref: str) -> dict[str, Any]:
        return (await search.get(ref))["card"]

    @routes.put("/{ref}/card")
    @needs(Scope.SEND)
    async def set_card(ref: str, card: dict[str, Any], me: Caller) -> dict[str, Any]:
        agent = await outside.resolve(ref)
        if agent.uid != me.uid:
            me.require(Scope.ADMIN)
        await outside.set_card(agent.uid, card)
        acted_on(about=agent.uid)
        return (await search.get(agent.uid))["card"]

    return routes


def keys_router(parts: Parts) -> APIRouter:
    """The route of the public key: a verifier of cards has no API key."""
    routes = APIRouter()

    @routes.get(JWKS)
    @anyone
    async def keys() -> dict[str, Any]:
        return {"keys": [parts.trust.card_key.jwk]}

    return routes
