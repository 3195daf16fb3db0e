"""Agents, their Agent Cards, and the key that signs the cards."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query

from postroom.control.parts import Parts
from postroom.protocol.limits import MAX_LABEL

Words = Annotated[str, Query(max_length=MAX_LABEL)]


def router(parts: Parts) -> APIRouter:
    """The routes of the operator."""
    routes = APIRouter(prefix="/agents")

    @routes.get("")
    async def agents(skill: Words = "", text: Words = "") -> dict[str, Any]:
        return {"agents": await parts.search.find(skill, text)}

    @routes.get("/{ref}/card")
    async def card(ref: str) -> dict[str, Any]:
        return (await parts.search.get(ref))["card"]

    return routes


def keys_router(parts: Parts) -> APIRouter:
    """The route without a caller's check: the key is public, and a verifier of cards has no API key."""
    routes = APIRouter()

    @routes.get("/keys")
    async def keys() -> dict[str, Any]:
        return {"keys": [parts.trust.card_key.jwk]}

    return routes
