"""The post room itself: status, shutdown."""

from __future__ import annotations

from collections.abc import Callable

from postroom import __version__
from postroom.control.parts import Parts
from postroom.control.principals import Caller, for_installation, needs
from postroom.control.routing import Routes
from postroom.control.statefile import Announcement
from postroom.control.task_trouble import BUS_AWAY
from postroom.errors import StateUnwritable
from postroom.protocol import answers, shapes
from postroom.protocol.principal import Scope

ALERTS_SHOWN = 10


def router(parts: Parts, announcement: Callable[[], Announcement]) -> Routes:
    """The routes; `announcement` returns the present content of `server.json`."""
    routes = Routes()

    @routes.get("/status")
    @needs(Scope.READ)
    async def status(me: Caller) -> shapes.Status:
        """Show the post room, its workers, and what needs a person."""
        return {
            "version": __version__,
            "server": announcement().as_json(),
            "org": me.org,
            "me": {"uid": me.uid, "nick": me.nick},
            "workers": await parts.views.all(),
            "deadletters": await parts.deadletters.count(),
            "inbox": (await parts.office.unread([me.uid])).get(me.uid, 0),
            "attention": [task.as_json() for task in await parts.tasks.attention()],
            "audit": parts.audit.trouble,
            "bus": _bus(parts),
            "alerts": [alert.as_json() for alert in await parts.alerts.standing(ALERTS_SHOWN)],
        }

    @routes.post("/shutdown", status_code=202)
    @needs(Scope.ADMIN)
    async def shutdown(me: Caller) -> answers.Ending:
        """End the post room."""
        for_installation(me)
        parts.installation.shut_down()
        return {"ending": True}

    return routes


def _bus(parts: Parts) -> str:
    if parts.bus.statistics().connected:
        return ""
    try:
        parts.space()
    except StateUnwritable:
        return f"{BUS_AWAY}: the disk is full"
    return BUS_AWAY
