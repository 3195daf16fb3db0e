"""The keys that sign credentials: list and rotate."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from postroom.control.bodies import RotateBody
from postroom.control.parts import Parts
from postroom.control.principals import Caller, for_installation, needs
from postroom.protocol.principal import Scope


def router(parts: Parts) -> APIRouter:
    """The routes."""
    routes = APIRouter(prefix="/trust")

    @routes.get("/keys")
    @needs(Scope.ADMIN)
    async def listing() -> dict[str, Any]:
        return {"keys": parts.trust.key_list()}

    @routes.post("/rotate")
    @needs(Scope.ADMIN)
    async def rotate(body: RotateBody, me: Caller) -> dict[str, Any]:
        if body.kind in {"operator", "proxy"}:
            for_installation(me)
        return (await parts.rotation.rotate(body.kind)).as_json()

    return routes
