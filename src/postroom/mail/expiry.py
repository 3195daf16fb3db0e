"""Messages whose time is over become dead(expired).

A recipient's sidecar skips them by itself; this says so to everybody, also where there is no recipient at work.
"""

from __future__ import annotations

from functools import partial

from postroom.mail.clerk import Clerk
from postroom.mail.due import Due
from postroom.protocol.receipts import Reason, State
from postroom.store import pending
from postroom.store.database import Connection, Database
from postroom.store.messages import MessageRow


class Expiry:
    """A task for `due.Watch`."""

    def __init__(self, database: Database, clerk: Clerk) -> None:
        self._database = database
        self._clerk = clerk

    async def find(self, now: float) -> Due:
        """Open messages whose `expires_at` is over."""
        return await self._database.read(partial(_find, now=now))

    async def act(self, message: MessageRow) -> None:
        """Append the receipt dead(expired)."""
        await self._clerk.report(message, State.DEAD, Reason.EXPIRED.value)


def _find(connection: Connection, now: float) -> Due:
    return Due(pending.expired(connection, now), pending.next_expiry(connection, now))
