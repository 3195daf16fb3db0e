"""The inbox of an agent that calls the API: people, and agents that Postroom does not run.

A reader asks for what is past a sequence. Nothing that it was given changes a state: only what it acknowledges does.
So whoever asks again from an earlier sequence is given again what it has not acknowledged, and is told so
(`Mail.redelivered`). Nothing counts attempts: a message waits until it is acknowledged, expires, or its recipient is
removed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from postroom.bus.port import MessageBusProvider
from postroom.directory.presence import Callers
from postroom.mail import views
from postroom.mail.office import PAGE, PostOffice
from postroom.mail.views import Mail
from postroom.projection.changes import FOLD_WAIT, Change, Changes, of_agent, of_message
from postroom.protocol import subjects
from postroom.protocol.handover import as_reason
from postroom.protocol.limits import MAX_PAGE
from postroom.protocol.receipts import Receipt, State, reached
from postroom.store.database import Database, Store
from postroom.store.messages import MessageRow

TOGETHER = 32
"""Receipts of one call that are on their way to the log at once."""


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """What an acknowledgement has done: the messages as they are now, and the ids of which the reader has none."""

    mails: Sequence[Mail]
    unknown: Sequence[str]


class Inboxes:
    """Reads and acknowledges, in the name of an agent that the caller has authenticated.

    Args:
        office: knows which messages are accepted and not folded yet.
        callers: notes on disk that a reader calls before it is given anything, and so knows after a crash what it may
            have been given.
    """

    def __init__(
        self,
        bus: MessageBusProvider,
        database: Database,
        changes: Changes,
        office: PostOffice,
        callers: Callers,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._bus = bus
        self._database = database
        self._changes = changes
        self._office = office
        self._callers = callers
        self._clock = clock
        # The last sequence that each reader was given, and that of the log when this process began.
        self._given: dict[str, int] = {}
        self._began = 0

    async def open(self) -> None:
        """Note which messages an earlier process may have given, and mend what a crash left of archives."""
        # First: what is folded from here on, no earlier process has given.
        self._began = await self._database.read(lambda store: store.cursor("INBOX"))
        await self._database.write(lambda store: store.reading.marked_again(), accounts=False)

    async def newest(
        self, reader: str, *, unread: bool = False, archived: bool = False, limit: int = PAGE
    ) -> list[Mail]:
        """The newest messages to `reader`, oldest first: a look at them, by which nothing is given.

        Without those that it has put away, or with `archived` those alone.
        """
        await self._office.catch_up()
        found = await self._read(
            lambda store: store.messages.inbox(
                reader, unread=unread, archived=archived, limit=limit
            )
        )
        return [self._flagged(reader, *each) for each in found]

    async def past(
        self,
        reader: str,
        after: int,
        *,
        unread: bool = False,
        limit: int = PAGE,
        wait: float = 0.0,
        follows: bool = False,
    ) -> list[Mail]:
        """Give `reader` its first messages past sequence `after`, oldest first.

        Args:
            unread: only those that it has not seen and still can; else all.
            wait: seconds to wait for the first one, if there is none.
            follows: the caller comes again when something was folded, so nothing on its way is waited for.

        Raises:
            Refused: too many callers wait.
        """

        def find(store: Store) -> list[MessageRow]:
            if not unread:
                return store.messages.to_past(reader, after, limit)
            return store.messages.unread_past(reader, after, self._clock(), limit)

        def came(change: Change) -> bool:
            return change.kind == "mail" and change.recipient == reader

        if not (wait or follows):
            await self._office.catch_up()
        with self._callers.waiting(reader):
            found = await self._changes.until(
                of_agent(reader), lambda: self._read(find), bool, wait, only=came
            )
        if found:
            await self._callers.note(reader)
        given = [self._flagged(reader, *each) for each in found]
        # Without a pause since the flags were set: of two readers at once, the second is told.
        if given:
            self._given[reader] = max(self._given.get(reader, 0), given[-1].seq)
        return given

    async def past_of(self, readers: Collection[str], after: int, limit: int = PAGE) -> list[Mail]:
        """Give several readers, whom one caller speaks for, their first unread messages past sequence `after`."""

        def find(store: Store) -> list[MessageRow]:
            return store.messages.unread_past_of(readers, after, self._clock(), limit)

        found = await self._read(find)
        for reader in {row.recipient for _, row in found}:
            await self._callers.note(reader)
        given = [self._flagged(row.recipient, mail, row) for mail, row in found]
        for _, row in found:
            self._given[row.recipient] = max(self._given.get(row.recipient, 0), row.seq)
        return given

    async def handed(self, reader: str, how: str) -> list[str]:
        """Ids of the messages that were delivered to `reader` in that way, and that it has not seen."""
        return await self._database.point(
            lambda store: store.messages.delivered(reader, as_reason(how), MAX_PAGE)
        )

    async def acknowledge(
        self, reader: str, ids: Iterable[str], state: State, how: str = ""
    ) -> Acknowledged:
        """Record that `reader` was handed these messages (`delivered`), or has read them (`seen`).

        `how` they were delivered stays with them. Doing it again has no second effect, and a state never goes back.

        Raises:
            StreamFull, RequestTimeout, BusDisconnected: perhaps not recorded; acknowledge again.
        """
        wanted = list(dict.fromkeys(ids))
        rows = await self._rows(reader, wanted)
        if len({row.id for row in rows}) < len(wanted):
            await self._office.catch_up()
            rows = await self._rows(reader, wanted)
        with self._changes.listen(*(of_message(row.id) for row in rows), limit=1) as listener:
            behind = [row for row in rows if not _is(row, state)]
            for at in range(0, len(behind), TOGETHER):
                some = behind[at : at + TOGETHER]
                await asyncio.gather(*(self._report(row, state, how) for row in some))
            rows = await listener.until(
                lambda: self._rows(reader, wanted),
                lambda now: all(_is(row, state) for row in now),
                FOLD_WAIT if behind else 0.0,
                None,
            )
        known = {row.id for row in rows}
        return Acknowledged(
            await self._database.read(lambda store: views.mails(store, rows)),
            [one for one in wanted if one not in known],
        )

    async def archive(
        self, reader: str, ids: Iterable[str], *, archived: bool = True
    ) -> tuple[int, list[str]]:
        """Put away messages to `reader`, or take them out again; how many there are, and the ids that name none.

        No sender learns it, and no state changes: what was not acknowledged is still given to who asks for it.
        """
        wanted = list(dict.fromkeys(ids))
        await self._office.catch_up()

        def put(store: Store) -> tuple[int, list[str]]:
            rows = store.messages.named_to(reader, wanted)
            known = {row.id for row in rows}
            seqs = [row.seq for row in rows]
            count = store.reading.archive(reader, seqs, self._clock(), put=archived)
            return count, [one for one in wanted if one not in known]

        return await self._database.write(put, accounts=False)

    async def archive_read(self, reader: str) -> int:
        """Put away all messages to `reader` that wait for nothing of it; returns how many."""

        def put(store: Store) -> int:
            seqs = store.reading.read(reader, MAX_PAGE)
            return store.reading.archive(reader, seqs, self._clock())

        total = count = await self._database.write(put, accounts=False)
        while count == MAX_PAGE:
            count = await self._database.write(put, accounts=False)
            total += count
        return total

    # ── inside ──────────────────────────────────────────────────────────────────────────────────────────

    async def _read(
        self, find: Callable[[Store], list[MessageRow]]
    ) -> list[tuple[Mail, MessageRow]]:
        def read(store: Store) -> list[tuple[Mail, MessageRow]]:
            rows = find(store)
            return list(zip(views.mails(store, rows), rows, strict=True))

        return await self._database.read(read)

    def _flagged(self, reader: str, mail: Mail, row: MessageRow) -> Mail:
        return replace(mail, redelivered=True) if self._is_again(reader, row) else mail

    def _is_again(self, reader: str, row: MessageRow) -> bool:
        """Whether `reader` may have been given a message before that it has not acknowledged as seen."""
        if _is(row, State.SEEN):
            return False
        if row.state == State.DELIVERED or row.seq <= self._given.get(reader, 0):
            return True
        return row.seq <= self._began and self._callers.called_before(reader, row.stored_at)

    async def _rows(self, reader: str, ids: Sequence[str]) -> list[MessageRow]:
        return await self._database.point(lambda store: store.messages.named_to(reader, ids))

    async def _report(self, row: MessageRow, state: State, how: str) -> None:
        # Stored under the reader's own uid, since the reader is who knows.
        receipt = Receipt(row.id, row.recipient, state, self._clock(), as_reason(how))
        await self._bus.publish(subjects.receipts(row.sender, row.recipient), receipt.encode())


def _is(row: MessageRow, state: State) -> bool:
    return row.final or reached(State(row.state), state)
