"""Alerts: list and clear."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from postroom.control.described import STORING, fails
from postroom.control.parameters import AlertRef
from postroom.control.parts import Parts
from postroom.control.principals import needs
from postroom.control.routing import Routes
from postroom.errors import NotFound
from postroom.protocol import answers
from postroom.protocol.principal import Scope

Ended = Annotated[bool, Query(description="Also those that have ended.")]


def router(parts: Parts) -> Routes:
    """The routes."""
    routes = Routes(prefix="/alerts")
    office = parts.alerts

    @routes.get("")
    @needs(Scope.OPERATE)
    async def alerts(*, all: Ended = False) -> answers.Alerts:  # noqa: A002 (the query's name)
        """List the alerts that stand.

        Those of the post room come before those that agents have raised; with `all=true` also those that have ended.
        """
        found = await (office.all() if all else office.standing())
        return {"alerts": [alarm.as_json() for alarm in found], "next": None}

    @routes.delete("")
    @needs(Scope.OPERATE)
    @fails(*STORING)
    async def clear_all() -> answers.Cleared:
        """Clear every alert that stands now."""
        return {"cleared": await office.clear()}

    @routes.delete("/{alert}")
    @needs(Scope.OPERATE)
    @fails(NotFound, *STORING)
    async def clear(alert: AlertRef) -> answers.Cleared:
        """Clear an alert.

        404 if it does not stand.
        """
        return {"cleared": await office.clear(_number(alert))}

    return routes


def _number(alert: str) -> int:
    if not (alert.isascii() and alert.isdecimal() and 0 < len(alert) < 19 and int(alert)):
        raise NotFound(f"there is no alert {alert!r}", remedy="postroom alerts")
    return int(alert)
