"""Backing up the post room, for its operator."""

from __future__ import annotations

from postroom.control.backup import back_up_running
from postroom.control.bodies import BackupBody
from postroom.control.ops.table import Operations
from postroom.control.orgs import Orgs
from postroom.control.parts import Parts
from postroom.control.principals import for_operator
from postroom.errors import Conflict
from postroom.protocol import answers
from postroom.protocol.principal import Principal, Scope

operations = Operations()


@operations.post("/v1/backup", Scope.ADMIN, fails=(Conflict,))
async def create(parts: Parts, orgs: Orgs, body: BackupBody, me: Principal) -> answers.Saved:
    """Write a backup of all organisations.

    `file` is an absolute path on the post room's machine. For the operator's key alone, which is in there.
    """
    for_operator(me)
    installation = parts.installation
    async with installation.backing_up:
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
        "orgs": list(taken.orgs),
        "skipped": list(taken.skipped),
    }
