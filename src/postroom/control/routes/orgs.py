"""The organisations of the post room, for its operator."""

from __future__ import annotations

from postroom.control.bodies import OrgBody
from postroom.control.described import fails
from postroom.control.orgs import Orgs
from postroom.control.parameters import NameRef
from postroom.control.principals import needs
from postroom.control.routing import Routes
from postroom.errors import Conflict, NotFound, Refused, RequestTimeout
from postroom.protocol import answers, shapes
from postroom.protocol.principal import Scope

METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]


def router(orgs: Orgs) -> Routes:
    """The routes."""
    routes = Routes(prefix="/orgs")

    @routes.get("")
    @needs(Scope.ADMIN)
    async def listed() -> answers.Orgs:
        """List the organisations, the default one first."""
        return {"orgs": await orgs.listed(), "next": None}

    @routes.post("", status_code=201)
    @needs(Scope.ADMIN)
    @fails(Conflict, Refused)
    async def create(body: OrgBody) -> shapes.Org:
        """Make an organisation.

        It answers when it is open, or `failed` at its first try; it is tried again.
        """
        return await orgs.create(body.name)

    @routes.delete("/{name}")
    @needs(Scope.ADMIN)
    @fails(NotFound, Conflict, RequestTimeout)
    async def remove(name: NameRef) -> answers.RemovedOrg:
        """End an organisation for ever.

        Its files are kept in `folder`.
        """
        return {"name": name, "folder": await orgs.remove(name)}

    return routes


def absent_router(orgs: Orgs) -> Routes:
    """The routes for an organisation that is not open, so that only the operator learns why."""
    routes = Routes(include_in_schema=False)

    @routes.api_route("/orgs/{name}/{rest:path}", methods=METHODS)
    @needs(Scope.ADMIN)
    async def absent(name: str) -> None:
        raise orgs.missing(name)

    return routes
