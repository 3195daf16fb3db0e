"""What the user does not keep any more, and giving it up now."""

from __future__ import annotations

from collections.abc import Iterable

from postroom.audit.log import ClosedFile
from postroom.control.parts import Parts
from postroom.control.principals import needs
from postroom.control.routing import Routes
from postroom.projection.pruning import Pruned
from postroom.protocol import answers, shapes
from postroom.protocol.principal import Scope
from postroom.settings import DEFAULT_ORG
from postroom_a2a.times import format_time


def router(parts: Parts) -> Routes:
    """The routes for retention; the files of the audit log, which all share, belong to the default organisation."""
    routes = Routes(prefix="/retention")
    audit = parts.installation.audit if parts.trust.org == DEFAULT_ORG else None

    @routes.get("")
    @needs(Scope.ADMIN)
    async def due() -> answers.Retention:
        """Show what the settings of retention do not keep."""
        return _shown(await parts.retention.due(), audit.too_old() if audit else ())

    @routes.delete("")
    @needs(Scope.ADMIN)
    async def prune() -> answers.Retention:
        """Delete now what the settings of retention do not keep."""
        found = await parts.retention.prune()
        return _shown(found, await audit.delete_too_old() if audit else ())

    return routes


def _shown(rows: Iterable[Pruned], files: Iterable[ClosedFile]) -> answers.Retention:
    shown: list[shapes.Excess] = [
        {
            "kind": found.kind,
            "project": found.project,
            "count": found.number,
            "bytes": found.size,
            "oldest": format_time(found.oldest),
        }
        for found in rows
    ]
    closed = list(files)
    if closed:
        shown.append(
            {
                "kind": "audit",
                "project": "",
                "count": len(closed),
                "bytes": sum(file.size for file in closed),
                "oldest": format_time(closed[0].written_at),
            }
        )
    return {"retention": shown, "next": None}
