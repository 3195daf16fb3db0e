"""The post office's own receipts about messages: those that cannot be delivered, and those that expire.

The clerk never writes a state into SQL. It appends a receipt to RECEIPTS under the reserved uid; the sender reads it
like any other, and its fold sets the state. So the log alone decides, even between an answer and an expiry in the
same moment. These receipts carry no de-duplication id, because an agent that guessed one could use it first. A
repeated receipt has no second effect. `Expiry` says what becomes due at an instant: messages expire.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from postroom.bus.port import MessageBusProvider
from postroom.projection.changes import Change
from postroom.projection.due import Due
from postroom.projection.following import After
from postroom.protocol import subjects
from postroom.protocol.receipts import Reason, Receipt, State
from postroom.store.database import Database, Store
from postroom.store.messages import MessageRow

TOGETHER = 32
"""Receipts that are on their way to the log at once."""


Report = tuple[MessageRow, State, str]
"""A message, its new state and the reason for it."""


class Clerk:
    """Finds messages whose state follows from the folded log, and appends the receipts for them.

    Attributes:
        elsewhere: takes the messages to agents that are not of this organisation (`mail.relay`); without it nobody has
            such an address.
    """

    def __init__(
        self, bus: MessageBusProvider, database: Database, clock: Callable[[], float] = time.time
    ) -> None:
        self._bus = bus
        self._database = database
        self._clock = clock
        self.elsewhere: Callable[[MessageRow], None] | None = None

    @property
    def after(self) -> After:
        """The clerk's work after the fold."""
        return After(find, self.settle, self.sweep)

    async def report(self, message: MessageRow, state: State, reason: str = "") -> None:
        """Append the post office's receipt for `message`.

        Raises:
            StreamFull, RequestTimeout, BusDisconnected: perhaps not in the log; call again.
        """
        receipt = Receipt(message.id, message.recipient, state, self._clock(), reason)
        await self._bus.publish(subjects.receipts(message.sender, self._bus.uid), receipt.encode())

    async def settle(self, found: Iterable[Report]) -> None:
        """Append a receipt for each."""
        await self._report_all(list(found))

    async def sweep(self) -> None:
        """Do the same for all open messages: after a start, and when an agent was retired."""
        after = 0
        while found := await self._database.read(
            lambda store, after=after: store.pending.unaddressable(after=after)
        ):
            lost = await self._database.read(lambda store: _untaken(store, found))
            await self._report_all([(row, State.DEAD, _why(known)) for row, known in lost])
            after = found[-1][0].seq
        after = 0
        while answered := await self._database.read(
            lambda store, after=after: store.pending.answered(after=after)
        ):
            await self._report_all([(row, State.ANSWERED, "") for row in answered])
            after = answered[-1].seq

    async def _report_all(self, found: Sequence[Report]) -> None:
        said = [each for each in found if not self._goes_on(each)]
        if len(said) == 1:
            await self.report(*said[0])
            return
        for at in range(0, len(said), TOGETHER):
            await asyncio.gather(*(self.report(*each) for each in said[at : at + TOGETHER]))

    def _goes_on(self, found: Report) -> bool:
        row, _, reason = found
        if self.elsewhere is None or reason != Reason.NO_SUCH_RECIPIENT.value:
            return False
        self.elsewhere(row)
        return True


def find(store: Store, changes: Sequence[Change]) -> list[Report]:
    """What follows from new messages: those without a recipient are dead, and replies answer others."""
    new = [change.row for change in changes if change.kind == "mail"]
    if not new:
        return []
    now = {change.row.seq: change.row for change in changes if change.kind in ("mail", "receipt")}
    return [*_lost(store, [now[row.seq] for row in new]), *_answered(store, new)]


def _lost(store: Store, new: Sequence[MessageRow]) -> list[Report]:
    open_ones = [row for row in new if not row.final]
    known = store.agents.agents_by_uid({row.recipient for row in open_ones})
    lost = [
        (row, row.recipient in known)
        for row in open_ones
        if (to := known.get(row.recipient)) is None or to.retired
    ]
    return [(row, State.DEAD, _why(addressed)) for row, addressed in _untaken(store, lost)]


def _answered(store: Store, new: Sequence[MessageRow]) -> list[Report]:
    """The open messages that the new ones answer, each once."""
    asked: dict[int, Report] = {}
    for reply in new:
        if reply.reply_to:
            row = store.messages.message_of(reply.recipient, reply.reply_to)
            if row is not None and row.recipient == reply.sender and not row.final:
                asked[row.seq] = (row, State.ANSWERED, "")
    return list(asked.values())


def _why(known: bool) -> str:
    return (Reason.RETIRED if known else Reason.NO_SUCH_RECIPIENT).value


def _untaken(
    store: Store, lost: Sequence[tuple[MessageRow, bool]]
) -> list[tuple[MessageRow, bool]]:
    """Those of `lost` that request no task which was taken: such a request ends with its task."""
    requests = [row.seq for row, _ in lost if row.requests]
    if not requests:
        return list(lost)
    taken = {head.requested_seq for head in store.tasks.heads_by_requests(requests) if head.seq}
    return [(row, known) for row, known in lost if row.seq not in taken]


class Expiry:
    """The job that turns expired messages into dead(expired)."""

    def __init__(self, database: Database, clerk: Clerk) -> None:
        self._database = database
        self._clerk = clerk

    async def find(self, now: float) -> Due[MessageRow]:
        """Open messages whose `expires_at` has passed."""
        return await self._database.read(partial(_expired, now=now))

    def due_at(self, row: MessageRow) -> float | None:
        """When it expires."""
        return row.expires_at or None

    async def act(self, row: MessageRow) -> None:
        """Append the receipt dead(expired)."""
        await self._clerk.report(row, State.DEAD, Reason.EXPIRED.value)


def _expired(store: Store, now: float) -> Due[MessageRow]:
    return Due(store.pending.expired(now), store.pending.next_expiry(now))
