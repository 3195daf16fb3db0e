"""What the post office itself says about a message: appended to the log as a receipt of its own.

It never writes a state into SQL. The receipt is stored in RECEIPTS under the reserved uid, the sender hears of it like
of any other, and folding it sets the state; so the log alone decides, also between an answer and an expiry that
come in the same moment. Receipts carry no de-duplication id: one that an agent could guess, it could use first.
Saying the same twice has no second effect.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from postroom.bus.port import MessageBusProvider
from postroom.projection.fold import After
from postroom.protocol import subjects
from postroom.protocol.receipts import Reason, Receipt, State
from postroom.store import pending
from postroom.store.database import Connection, Database
from postroom.store.messages import MessageRow

TOGETHER = 32
"""Receipts that are on their way to the log at a time."""


class Clerk:
    """Finds messages whose state follows from what is folded, and says so.

    Args:
        bus: connection of the control plane.
    """

    def __init__(
        self, bus: MessageBusProvider, database: Database, clock: Callable[[], float] = time.time
    ) -> None:
        self._bus = bus
        self._database = database
        self._clock = clock

    @property
    def after(self) -> dict[str, list[After]]:
        """What the fold of mail has this clerk do."""
        # Receipts that are in the log already must be known, or they would be said again.
        return {"INBOX": [After(self.settle, self.sweep, known=("RECEIPTS",))]}

    async def report(self, message: MessageRow, state: State, reason: str = "") -> None:
        """Append the post office's receipt for `message`.

        Raises:
            StreamFull, RequestTimeout, BusDisconnected: it is not, or perhaps not, in the log; say it again.
        """
        receipt = Receipt(message.id, message.recipient, state, self._clock(), reason)
        await self._bus.publish(subjects.receipts(message.sender, self._bus.uid), receipt.encode())

    async def settle(self, seqs: Iterable[int]) -> None:
        """Report on the messages of INBOX at `seqs`: nobody there, or an answer to an earlier one."""
        lost, answered = await self._database.read(partial(_following, seqs=list(seqs)))
        await self._report_all(lost, answered)

    async def sweep(self) -> None:
        """The same for all open messages: after a start, and when an agent was retired."""
        after = 0
        while lost := await self._database.read(partial(pending.unaddressable, after=after)):
            await self._report_all(lost, [])
            after = lost[-1][0].seq
        after = 0
        while found := await self._database.read(partial(pending.answered, after=after)):
            await self._report_all([], found)
            after = found[-1].seq

    async def _report_all(
        self, lost: Sequence[tuple[MessageRow, bool]], answered: Sequence[MessageRow]
    ) -> None:
        """Some at a time: the fold waits for it, and with it all that others have sent."""
        said = [(message, State.DEAD, _why(known)) for message, known in lost]
        said += [(message, State.ANSWERED, "") for message in answered]
        for at in range(0, len(said), TOGETHER):
            await asyncio.gather(*(self.report(*each) for each in said[at : at + TOGETHER]))


def _why(known: bool) -> str:
    return (Reason.RETIRED if known else Reason.NO_SUCH_RECIPIENT).value


def _following(
    connection: Connection, seqs: list[int]
) -> tuple[list[tuple[MessageRow, bool]], list[MessageRow]]:
    return pending.unaddressable(connection, seqs), pending.answered(connection, seqs)
