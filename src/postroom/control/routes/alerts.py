"""Alerts: list and clear."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from postroom.control.parts import Parts
from postroom.control.principals import needs
from postroom.errors import NotFound
from postroom.protocol.principal import Scope


def router(parts: Parts) -> APIRouter:
    """The routes."""
    routes = APIRouter(prefix="/alerts")
    office = parts.alerts

    @routes.get("")
    @needs(Scope.OPERATE)
    async def alerts(*, all: bool = False) -> dict[str, Any]:  # noqa: A002 (the query's name)
        found = await (office.all() if all else office.standing())
        return {"alerts": [alarm.as_json() for alarm in found]}

    @routes.delete("")
    @needs(Scope.OPERATE)
    async def clear_all() -> dict[str, Any]:
        return {"cleared": await office.clear()}

    @routes.delete("/{alert}")
    @needs(Scope.OPERATE)
    async def clear(alert: str) -> dict[str, Any]:
        return {"cleared": await office.clear(_number(alert))}

    return routes


def _number(alert: str) -> int:
    if not (alert.isascii() and alert.isdecimal() and 0 < len(alert) < 19 and int(alert)):
        raise NotFound(f"there is no alert {alert!r}", remedy="postroom alerts")
    return int(alert)
