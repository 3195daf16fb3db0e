"""What the user does not keep any more, and giving it up now."""

from __future__ import annotations

from collections.abc import Iterable

from postroom.audit.log import AuditLog, ClosedFile
from postroom.control.ops.table import Operations
from postroom.control.parts import Parts
from postroom.projection.retention import Pruned
from postroom.protocol import answers, shapes
from postroom.protocol.principal import Scope
from postroom.settings import DEFAULT_ORG
from postroom_a2a.times import format_time

operations = Operations()


@operations.get("/v1/retention", Scope.ADMIN)
async def due(parts: Parts) -> answers.Retention:
    """Show what the settings of retention do not keep."""
    audit = _audit(parts)
    return _shown(await parts.retention.due(), audit.too_old() if audit else ())


@operations.delete("/v1/retention", Scope.ADMIN)
async def prune(parts: Parts) -> answers.Retention:
    """Delete now what the settings of retention do not keep."""
    found, audit = await parts.retention.prune(), _audit(parts)
    return _shown(found, await audit.delete_too_old() if audit else ())


def _audit(parts: Parts) -> AuditLog | None:
    """The audit log, whose files all organisations share: they belong to the default one."""
    return parts.installation.audit if parts.trust.org == DEFAULT_ORG else None


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
