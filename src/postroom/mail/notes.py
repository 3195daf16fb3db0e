"""What a worker is told when its message to a session in somebody's terminal waits.

Who sends over the API has that in the answer. A worker sends on the bus, so it gets one more receipt of `accepted`,
with what it should know as the reason. That changes no state; one that got lost is not sent again.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from postroom.mail.clerk import Clerk
from postroom.observe.supervision import well
from postroom.projection.changes import MAIL, Change, Changes, Signal
from postroom.projection.due import LONGEST_SLEEP
from postroom.projection.following import Quota
from postroom.protocol.receipts import State
from postroom.store.agents import Party
from postroom.store.database import Database
from postroom.store.messages import MessageRow

WINDOW = 60.0
"""Seconds in which a worker is told once of one session."""


class WorkerNotes:
    """Tells workers.

    Args:
        blocker: returns why a session does not get its mail by itself, "" where it does, and for any other agent.
        told: returns the line for the sender.
    """

    def __init__(
        self,
        database: Database,
        changes: Changes,
        clerk: Clerk,
        blocker: Callable[[str], str],
        told: Callable[[Party], str],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._database = database
        self._changes = changes
        self._clerk = clerk
        self._blocker = blocker
        self._told = told
        self._clock = clock
        self._quota = Quota(1, WINDOW)

    async def run(self) -> None:
        """Tell them until cancelled, or until the changes are closed."""
        with self._changes.listen(MAIL, only=self._waits) as listener:
            while True:
                change = await listener.next(LONGEST_SLEEP)
                if change is Signal.CLOSED:
                    return
                if isinstance(change, Change):
                    await self._tell(change.row)
                well()

    def _waits(self, change: Change) -> bool:
        return bool(self._blocker(change.recipient))

    async def _tell(self, row: MessageRow) -> None:
        pair = {row.sender, row.recipient}
        parties = await self._database.point(lambda store: store.agents.parties(pair))
        said = self._told(parties[row.recipient])
        if parties[row.sender].kind != "worker" or row.final or not said:
            return
        if self._quota.take(f"{row.sender} {row.recipient}", self._clock()):
            await self._clerk.report(row, State.ACCEPTED, said)
