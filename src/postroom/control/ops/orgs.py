"""The organisations of the post room, for its operator."""

from __future__ import annotations

from postroom.control.bodies import OrgBody
from postroom.control.ops.table import REST, Operations
from postroom.control.orgs import Orgs
from postroom.control.parameters import NameRef
from postroom.errors import Conflict, NotFound, Refused, RequestTimeout
from postroom.protocol import answers, shapes
from postroom.protocol.principal import Scope

operations = Operations()


@operations.get("/v1/orgs", Scope.ADMIN)
async def list_(orgs: Orgs) -> answers.Orgs:
    """List the organisations, the default one first."""
    return {"orgs": await orgs.listed(), "next": None}


@operations.post("/v1/orgs", Scope.ADMIN, status=201, fails=(Conflict, Refused))
async def create(orgs: Orgs, body: OrgBody) -> shapes.Org:
    """Make an organisation.

    It answers when it is open, or `failed` at its first try; it is tried again.
    """
    return await orgs.create(body.name)


@operations.delete("/v1/orgs/{name}", Scope.ADMIN, fails=(NotFound, Conflict, RequestTimeout))
async def remove(orgs: Orgs, name: NameRef) -> answers.RemovedOrg:
    """End an organisation for ever.

    Its files are kept in `folder`.
    """
    return {"name": name, "folder": await orgs.remove(name)}


async def absent(orgs: Orgs, name: NameRef) -> None:
    """Refuse what is asked of an organisation that is not open, so that only the operator learns why."""
    raise orgs.missing(name)


for _method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"):
    operations.add(_method, f"/orgs/{{name}}/{REST}", Scope.ADMIN, hidden=True)(absent)
