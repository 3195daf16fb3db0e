"""The post office's own receipts about messages.

The clerk never writes a state into SQL. It appends a receipt to RECEIPTS under the reserved uid; the sender reads it
like any other, and its fold sets the state. So the log alone decides, even between an answer and an expiry in the
same moment. These receipts carry no de-duplication id, because an agent that guessed one could use it first. A
repeated receipt has no second effect.
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
from postroom.store.database import Database, Store
from postroom.store.messages import MessageRow

TOGETHER = 32
"""Receipts that are on their way to the log at once."""


class Clerk:
    """Finds messages whose state follows from the folded log, and appends the receipts for them."""

    def __init__(
        self, bus: MessageBusProvider, database: Database, clock: Callable[[], float] = time.time
    ) -> None:
        self._bus = bus
        self._database = database
        self._clock = clock

    @property
    def after(self) -> dict[str, list[After]]:
        """The clerk's work after the fold of each stream."""
        # Fold RECEIPTS first, or the clerk would repeat receipts that are in the log already.
        return {"INBOX": [After(self.settle, self.sweep, known=("RECEIPTS",))]}

    async def report(self, message: MessageRow, state: State, reason: str = "") -> None:
        """Append the post office's receipt for `message`.

        Raises:
            StreamFull, RequestTimeout, BusDisconnected: perhaps not in the log; call again.
        """
        receipt = Receipt(message.id, message.recipient, state, self._clock(), reason)
        await self._bus.publish(subjects.receipts(message.sender, self._bus.uid), receipt.encode())

    async def settle(self, seqs: Iterable[int]) -> None:
        """Report on the messages of INBOX at `seqs`: those without a recipient, and those that answer another."""
        lost, answered = await self._database.read(partial(_following, seqs=list(seqs)))
        await self._report_all(lost, answered)

    async def sweep(self) -> None:
        """Do the same for all open messages: after a start, and when an agent was retired."""
        after = 0
        while found := await self._database.read(
            lambda store, after=after: store.pending.unaddressable(after=after)
        ):
            lost = await self._database.read(lambda store: _untaken(store, found))
            await self._report_all(lost, [])
            after = found[-1][0].seq
        after = 0
        while answered := await self._database.read(
            lambda store, after=after: store.pending.answered(after=after)
        ):
            await self._report_all([], answered)
            after = answered[-1].seq

    async def _report_all(
        self, lost: Sequence[tuple[MessageRow, bool]], answered: Sequence[MessageRow]
    ) -> None:
        """Report in small groups, because the fold waits for them, and everybody's messages with it."""
        said = [(message, State.DEAD, _why(known)) for message, known in lost]
        said += [(message, State.ANSWERED, "") for message in answered]
        for at in range(0, len(said), TOGETHER):
            await asyncio.gather(*(self.report(*each) for each in said[at : at + TOGETHER]))


def _why(known: bool) -> str:
    return (Reason.RETIRED if known else Reason.NO_SUCH_RECIPIENT).value


def _following(
    store: Store, seqs: list[int]
) -> tuple[list[tuple[MessageRow, bool]], list[MessageRow]]:
    return _untaken(store, store.pending.unaddressable(seqs)), store.pending.answered(seqs)


def _untaken(
    store: Store, lost: Sequence[tuple[MessageRow, bool]]
) -> list[tuple[MessageRow, bool]]:
    """Those of `lost` that request no task which was taken: such a request ends with its task."""
    requests = [row.seq for row, _ in lost if row.requests]
    if not requests:
        return list(lost)
    taken = {head.requested_seq for head in store.tasks.heads_by_requests(requests) if head.seq}
    return [(row, known) for row, known in lost if row.seq not in taken]
