"""Agents, their Agent Cards, and the key that signs the cards."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query

from postroom.control.parts import Parts
from postroom.control.principals import anyone, needs
from postroom.protocol.limits import MAX_LABEL
from postroom.protocol.principal import Scope

JWKS = "/.well-known/jwks.json"
"""Where verifiers look for public keys, below the address of an organisation."""

Words = Annotated[str, Query(max_length=MAX_LABEL)]


def router(parts: Parts) -> APIRouter:
    """The routes."""
    routes = APIRouter(prefix="/agents")

    @routes.get("")
    @needs(Scope.READ)
    async def agents(skill: Words = "", text: Words = "") -> dict[str, Any]:
        return {"agents": await parts.search.find(skill, text)}

    @routes.get("/{ref}/card")
    @needs(Scope.READ)
    async def card(ref: str) -> dict[str, Any]:
        return (await parts.search.get(ref))["card"]

    return routes


def keys_router(parts: Parts) -> APIRouter:
    """The route of the public key: a verifier of cards has no API key."""
    routes = APIRouter()

    @routes.get(JWKS)
    @anyone
    async def keys() -> dict[str, Any]:
        return {"keys": [parts.trust.card_key.jwk]}

    return routes
