"""The post room itself: status, shutdown."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from functools import cache

from starlette.responses import Response

from postroom import __version__
from postroom.build import commit
from postroom.control.ops.table import ANYONE, Operation, Operations
from postroom.control.parts import Parts
from postroom.control.principals import for_installation
from postroom.control.statefile import Announcement
from postroom.errors import StateUnwritable
from postroom.feed.records import BUS_AWAY
from postroom.protocol import answers, shapes
from postroom.protocol.principal import Principal, Scope

ALERTS_SHOWN = 10
APPROVALS_SHOWN = 20
FULL = (
    "the disk of the post room is full: messages, tasks and starts are refused until there is space"
)


operations = Operations()


@operations.get("/v1/status", Scope.READ, strangers=True)
async def status(
    parts: Parts, announcement: Callable[[], Announcement], me: Principal
) -> shapes.Status:
    """Show the post room, its workers, and what needs a person.

    Who does not operate is shown what is their own alone, and of `server` only what everybody may know.
    """
    everything = me.allows(Scope.OPERATE)
    asked = await parts.approvals.waiting(APPROVALS_SHOWN, me.only)
    grants, asking = await parts.grants.of_late(me)
    standing = await parts.alerts.standing(ALERTS_SHOWN) if everything else []
    return {
        "version": __version__,
        "commit": commit(),
        "server": announcement().as_json() if everything else announcement().for_all(),
        "org": me.org,
        "me": {"uid": me.uid, "nick": me.nick},
        "workers": await parts.views.all() if everything else [],
        "sessions": await parts.sessions.shown(parts.sessions.seen_by(me)),
        "deadletters": await parts.deadletters.count(me.only),
        "inbox": (await parts.office.unread([me.uid])).get(me.uid, 0),
        "attention": [task.as_json() for task in await parts.tasks.attention(me.only)],
        "approvals": [view.as_json() for view in asked],
        "grants": grants,
        "asking": asking,
        "audit": parts.audit.trouble if everything else "",
        "bus": _bus(parts),
        "background": [each for some in parts.supervisors for each in some.failing]
        if everything
        else [],
        "alerts": [alert.as_json() for alert in standing],
    }


@operations.post("/v1/shutdown", Scope.ADMIN, status=202)
async def shutdown(parts: Parts, me: Principal) -> answers.Ending:
    """End the post room."""
    for_installation(me)
    parts.installation.shut_down()
    return {"ending": True}


def _bus(parts: Parts) -> str:
    away = "" if parts.bus.statistics().connected else BUS_AWAY
    try:
        parts.space()
    except StateUnwritable:
        return f"{away}: the disk is full" if away else FULL
    return away


@operations.get("/v1/openapi.json", ANYONE, hidden=True)
async def openapi(table: list[Operation]) -> Response:
    """The document of this API; it is made when it is first asked for."""
    return Response(await asyncio.to_thread(_document, tuple(table)), media_type="application/json")


@cache
def _document(table: tuple[Operation, ...]) -> bytes:
    from postroom.control.openapi.document import document

    return json.dumps(document(table), separators=(",", ":")).encode()
