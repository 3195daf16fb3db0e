"""Everybody with an address, Agent Cards, and the key that they are signed with."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query

from postroom.control.context import Context

Words = Annotated[str, Query(max_length=200)]


def router(context: Context) -> APIRouter:
    """The routes of the operator."""
    routes = APIRouter(prefix="/agents")

    @routes.get("")
    async def agents(skill: Words = "", text: Words = "") -> dict[str, Any]:
        return {"agents": await context.pages.find(skill, text)}

    @routes.get("/{ref}/card")
    async def card(ref: str) -> dict[str, Any]:
        return (await context.pages.get(ref))["card"]

    return routes


def keys_router(context: Context) -> APIRouter:
    """The route of everybody: a public key is no secret, and who checks a card has no API key."""
    routes = APIRouter()

    @routes.get("/keys")
    async def keys() -> dict[str, Any]:
        return {"keys": [context.card_key]}

    return routes
