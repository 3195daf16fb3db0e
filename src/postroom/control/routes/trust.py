"""The keys that credentials hang on: list and rotate."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from postroom.control.bodies import RotateBody
from postroom.control.context import Context


def router(context: Context) -> APIRouter:
    """The routes of the operator."""
    routes = APIRouter(prefix="/trust")

    @routes.get("/keys")
    async def listing() -> dict[str, Any]:
        return {"keys": context.keys()}

    @routes.post("/rotate")
    async def rotate(body: RotateBody) -> dict[str, Any]:
        return (await context.rotation.rotate(body.kind)).as_json()

    return routes
