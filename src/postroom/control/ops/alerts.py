"""Alerts: list and clear."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from postroom.control.ops.table import STORING, Operations
from postroom.control.parameters import AlertRef
from postroom.control.parts import Parts
from postroom.errors import NotFound
from postroom.protocol import answers
from postroom.protocol.principal import Scope

Ended = Annotated[bool, Field(description="Also those that have ended.")]


operations = Operations()


@operations.get("/v1/alerts", Scope.OPERATE)
async def list_(parts: Parts, *, all: Ended = False) -> answers.Alerts:  # noqa: A002 (the query's name)
    """List the alerts that stand.

    Those of the post room come before those that agents have raised; with `all=true` also those that have ended.
    """
    found = await (parts.alerts.all() if all else parts.alerts.standing())
    return {"alerts": [alarm.as_json() for alarm in found], "next": None}


@operations.delete("/v1/alerts", Scope.OPERATE, fails=(*STORING,))
async def clear_all(parts: Parts) -> answers.Cleared:
    """Clear every alert that stands now."""
    return {"cleared": await parts.alerts.clear()}


@operations.delete("/v1/alerts/{alert}", Scope.OPERATE, fails=(NotFound, *STORING))
async def clear(parts: Parts, alert: AlertRef) -> answers.Cleared:
    """Clear an alert.

    404 if it does not stand.
    """
    return {"cleared": await parts.alerts.clear(_number(alert))}


def _number(alert: str) -> int:
    if not (alert.isascii() and alert.isdecimal() and 0 < len(alert) < 19 and int(alert)):
        raise NotFound(f"there is no alert {alert!r}", remedy="postroom alerts")
    return int(alert)
