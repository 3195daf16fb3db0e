"""The organisations of the post room, for its operator."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from postroom.control.bodies import OrgBody
from postroom.control.orgs import Orgs
from postroom.control.principals import needs
from postroom.protocol.principal import Scope

METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]


def router(orgs: Orgs) -> APIRouter:
    """The routes."""
    routes = APIRouter(prefix="/orgs")

    @routes.get("")
    @needs(Scope.ADMIN)
    async def listed() -> dict[str, Any]:
        return {"orgs": await orgs.listed()}

    @routes.post("", status_code=201)
    @needs(Scope.ADMIN)
    async def create(body: OrgBody) -> dict[str, Any]:
        return await orgs.create(body.name)

    @routes.delete("/{name}")
    @needs(Scope.ADMIN)
    async def remove(name: str) -> dict[str, Any]:
        return {"name": name, "folder": await orgs.remove(name)}

    return routes


def absent_router(orgs: Orgs) -> APIRouter:
    """The routes for an organisation that is not open, so that only the operator learns why."""
    routes = APIRouter(include_in_schema=False)

    @routes.api_route("/orgs/{name}/{rest:path}", methods=METHODS)
    @needs(Scope.ADMIN)
    async def absent(name: str) -> None:
        raise orgs.missing(name)

    return routes
