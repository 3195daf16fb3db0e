"""Dead letters: list, show, requeue, drop."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from postroom.control.context import Context


def router(context: Context) -> APIRouter:
    """The routes."""
    routes = APIRouter(prefix="/deadletters")
    letters = context.room.deadletters

    @routes.get("")
    async def deadletters() -> dict[str, Any]:
        return {"deadletters": [letter.as_json() for letter in await letters.all()]}

    @routes.get("/{letter}")
    async def show(letter: int) -> dict[str, Any]:
        return (await letters.get(letter)).as_json()

    @routes.post("/{letter}/requeue", status_code=201)
    async def requeue(letter: int) -> dict[str, Any]:
        return {"id": await letters.requeue(letter)}

    @routes.delete("/{letter}", status_code=204)
    async def drop(letter: int) -> None:
        await letters.drop(letter)

    return routes
