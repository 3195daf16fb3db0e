"""Backing up the post room, for its operator."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from postroom.control.backup import back_up_running
from postroom.control.bodies import BackupBody
from postroom.control.orgs import Orgs
from postroom.control.parts import Parts
from postroom.control.principals import needs
from postroom.protocol.principal import Scope


def router(parts: Parts, orgs: Orgs) -> APIRouter:
    """The route."""
    routes = APIRouter(prefix="/backup")

    @routes.post("")
    @needs(Scope.ADMIN)
    async def back_up(body: BackupBody) -> dict[str, Any]:
        installation = parts.installation
        taken = await back_up_running(
            installation.settings,
            {parts.trust.org: parts.database, **orgs.databases()},
            installation.host.pid,
            body.file,
            body.passphrase.get_secret_value(),
        )
        return {
            "file": str(taken.file),
            "bytes": taken.size,
            "orgs": taken.orgs,
            "skipped": taken.skipped,
        }

    return routes
