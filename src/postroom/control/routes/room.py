"""The post room itself: status, shutdown."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from fastapi import APIRouter

from postroom import __version__
from postroom.control.context import Context
from postroom.control.mailroom import Mailroom
from postroom.control.outages import BUS_AWAY
from postroom.errors import StateUnwritable

ALERTS_SHOWN = 10


def router(context: Context) -> APIRouter:
    """The routes of the operator."""
    routes = APIRouter()

    @routes.get("/status")
    async def status() -> dict[str, Any]:
        said = asdict(context.announcement())
        del said["token"]
        return {
            "version": __version__,
            "server": {key: said[key] for key in said if key not in ("me", "version")},
            "org": context.room.owner.org,
            "me": said["me"],
            "workers": await context.roster.all(),
            "deadletters": await context.room.deadletters.count(),
            "inbox": (await context.room.office.unread([context.room.owner.uid])).get(
                context.room.owner.uid, 0
            ),
            "attention": [task.as_json() for task in await context.tasks.attention()],
            "audit": context.audit.trouble,
            "bus": _bus(context.room),
            "alerts": [
                alert.as_json() for alert in await context.room.alerts.standing(ALERTS_SHOWN)
            ],
        }

    @routes.post("/shutdown", status_code=202)
    async def shutdown() -> dict[str, Any]:
        context.shut_down()
        return {"ending": True}

    return routes


def _bus(room: Mailroom) -> str:
    if room.bus.statistics().connected:
        return ""
    try:
        room.space()
    except StateUnwritable:
        return f"{BUS_AWAY}: the disk is full"
    return BUS_AWAY
