"""The keys that sign credentials: list and rotate."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from postroom.control.bodies import RotateBody
from postroom.control.parts import Parts


def router(parts: Parts) -> APIRouter:
    """The routes of the operator."""
    routes = APIRouter(prefix="/trust")

    @routes.get("/keys")
    async def listing() -> dict[str, Any]:
        return {"keys": parts.trust.key_list()}

    @routes.post("/rotate")
    async def rotate(body: RotateBody) -> dict[str, Any]:
        return (await parts.rotation.rotate(body.kind)).as_json()

    return routes
