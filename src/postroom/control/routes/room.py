"""The post room itself: status, shutdown."""

from __future__ import annotations

from collections.abc import Callable

from postroom import __version__
from postroom.build import commit
from postroom.control.parts import Parts
from postroom.control.principals import Caller, for_installation, needs
from postroom.control.routing import Routes
from postroom.control.statefile import Announcement
from postroom.control.task_trouble import BUS_AWAY
from postroom.errors import StateUnwritable
from postroom.protocol import answers, shapes
from postroom.protocol.principal import Scope

ALERTS_SHOWN = 10
APPROVALS_SHOWN = 20
FULL = (
    "the disk of the post room is full: messages, tasks and starts are refused until there is space"
)


def router(parts: Parts, announcement: Callable[[], Announcement]) -> Routes:
    """The routes; `announcement` returns the present content of `server.json`."""
    routes = Routes()
    made_from = commit()

    @routes.get("/status")
    @needs(Scope.READ)
    async def status(me: Caller) -> shapes.Status:
        """Show the post room, its workers, and what needs a person.

        Who does not operate is shown what is their own alone, and of `server` only what everybody may know.
        """
        everything = me.allows(Scope.OPERATE)
        asked = await parts.approvals.waiting(APPROVALS_SHOWN) if everything else []
        standing = await parts.alerts.standing(ALERTS_SHOWN) if everything else []
        return {
            "version": __version__,
            "commit": made_from,
            "server": announcement().as_json() if everything else announcement().for_all(),
            "org": me.org,
            "me": {"uid": me.uid, "nick": me.nick},
            "workers": await parts.views.all() if everything else [],
            "deadletters": await parts.deadletters.count(me.only),
            "inbox": (await parts.office.unread([me.uid])).get(me.uid, 0),
            "attention": [task.as_json() for task in await parts.tasks.attention(me.only)],
            "approvals": [view.as_json() for view in asked],
            "audit": parts.audit.trouble if everything else "",
            "bus": _bus(parts),
            "background": [each for some in parts.supervisors for each in some.failing]
            if everything
            else [],
            "alerts": [alert.as_json() for alert in standing],
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
    away = "" if parts.bus.statistics().connected else BUS_AWAY
    try:
        parts.space()
    except StateUnwritable:
        return f"{away}: the disk is full" if away else FULL
    return away
