"""Dead letters: list, show, requeue, drop."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from postroom.control.parts import Parts
from postroom.control.principals import Caller, needs
from postroom.protocol.principal import Scope


def router(parts: Parts) -> APIRouter:
    """The routes."""
    routes = APIRouter(prefix="/deadletters")
    letters = parts.deadletters

    @routes.get("")
    @needs(Scope.READ)
    async def deadletters(me: Caller) -> dict[str, Any]:
        return {"deadletters": [letter.as_json() for letter in await letters.all(only=me.only)]}

    @routes.get("/{letter}")
    @needs(Scope.READ)
    async def show(letter: str, me: Caller) -> dict[str, Any]:
        return (await letters.get(await letters.find(letter, me.only))).as_json()

    @routes.post("/{letter}/requeue", status_code=201)
    @needs(Scope.OPERATE)
    async def requeue(letter: str) -> dict[str, Any]:
        return {"id": await letters.requeue(await letters.find(letter))}

    @routes.delete("/{letter}", status_code=204)
    @needs(Scope.OPERATE)
    async def drop(letter: str) -> None:
        await letters.drop(await letters.find(letter))

    return routes
