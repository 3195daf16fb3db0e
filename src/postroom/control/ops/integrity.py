"""Whether the messages in the database are as they were stored."""

from __future__ import annotations

from postroom.control.ops.table import Operations
from postroom.control.parts import Parts
from postroom.mail.integrity import check_all
from postroom.protocol import answers
from postroom.protocol.principal import Scope

operations = Operations()


@operations.get("/v1/integrity", Scope.ADMIN)
async def check(parts: Parts) -> answers.Integrity:
    """Check the signature of every message.

    `named` are those that are not as they were stored: somebody has changed them in the database.
    """
    return (await check_all(parts.database)).as_json()
