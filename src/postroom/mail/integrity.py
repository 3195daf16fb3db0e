"""Messages that somebody has changed in the database: all are signed, checked and mended here, and who owns the post
room is told.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field

from postroom.bus.port import BusAdmin
from postroom.errors import Conflict, NotFound, PostroomError
from postroom.mail.projection import message_of
from postroom.protocol import answers
from postroom.protocol.alerts import Alert, RaiseAlert
from postroom.protocol.limits import MAX_PAGE
from postroom.store.agents import Party
from postroom.store.database import Database, Store
from postroom.store.messages import MessageRow
from postroom.store.signing import FIRST, Signer, mark_of
from postroom_a2a.times import format_time

KIND = "message-altered"
"""Kind of the alert; its `about` is the id of the message."""

MOST_TOLD = 20
"""Messages for which one run of the post room raises an alert; `postroom admin verify` names all."""

MOST_NAMED = 1000
"""Altered messages that one check names; it counts all."""


@dataclass(frozen=True, slots=True)
class AlteredMessage:
    """A message that is not as it was stored; its parties are as the row names them now."""

    row: MessageRow
    sender: Party
    recipient: Party


@dataclass(slots=True)
class Checked:
    """What a check of all messages has found.

    Attributes:
        number: messages that were checked.
        first: those of them that were signed at the first start of a Postroom that signs.
        altered: how many are not as they were stored.
        named: the first of those.
    """

    number: int = 0
    first: int = 0
    altered: int = 0
    named: list[AlteredMessage] = field(default_factory=list)

    def as_json(self) -> answers.Integrity:
        """Shape of the API."""
        return {
            "messages": self.number,
            "first": self.first,
            "altered": self.altered,
            "named": [
                {
                    "id": one.row.id,
                    "from": one.sender.as_json(),
                    "to": one.recipient.as_json(),
                    "at": format_time(one.row.stored_at),
                }
                for one in self.named
            ],
        }


async def check_all(database: Database) -> Checked:
    """Check every message of an organisation; its database has a signer."""
    found, signer = Checked(), _signer(database)

    def check(store: Store, after: int) -> int:
        rows = store.messages.unchecked(after, MAX_PAGE)
        wrong = [row for row in rows if not signer.holds(row)]
        found.number += len(rows)
        found.first += sum(mark_of(row) == FIRST for row in rows)
        found.altered += len(wrong)
        named = wrong[: MOST_NAMED - len(found.named)]
        known = store.agents.parties(uid for row in named for uid in (row.sender, row.recipient))
        found.named += [
            AlteredMessage(row, known[row.sender], known[row.recipient]) for row in named
        ]
        return rows[-1].seq if rows else 0

    after = await database.read(lambda store: check(store, 0))
    while after:
        after = await database.read(lambda store, at=after: check(store, at))
    return found


async def sign_all(database: Database) -> int:
    """Sign with the present key what has no signature yet, where that counts, and what a former key has signed.

    What is not as it was stored stays so. Returns how many were signed.
    """
    signer, signed = _signer(database), 0

    def sign(store: Store, after: int) -> int:
        nonlocal signed
        rows = store.messages.unchecked(after, MAX_PAGE)
        for row in rows:
            if not signer.is_present(row) and signer.holds(row):
                mark = mark_of(row) if row.signature else FIRST
                store.messages.sign(row.seq, signer.sign(row, mark))
                signed += 1
        return rows[-1].seq if rows else 0

    after = await database.write(lambda store: sign(store, 0), accounts=False)
    while after:
        after = await database.write(lambda store, at=after: sign(store, at), accounts=False)
    return signed


async def mend(database: Database, admin: BusAdmin) -> int:
    """Give altered messages back what the log says, where that still has them; returns how many.

    What the log has no more stays altered: nothing proves what it said.
    """
    mended = 0
    for one in (await check_all(database)).named:
        # Conflict: the row says that it is another message, which there is.
        with suppress(NotFound, Conflict):
            said = message_of(await admin.get("INBOX", one.row.seq))
            if said is not None:
                await database.write(
                    lambda store, row=said: store.messages.put_back(row), accounts=False
                )
                mended += 1
    return mended


def _signer(database: Database) -> Signer:
    if database.signer is None:
        raise AssertionError("a database without a signer has no signed messages")
    return database.signer


class AlteredAlerts:
    """Raises an alert for each altered message that somebody reads."""

    def __init__(self, signer: Signer, alert: RaiseAlert) -> None:
        self._alert = alert
        self._told: set[int] = set()
        self._new: asyncio.Queue[MessageRow] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def found(row: MessageRow) -> None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._found, row)

        signer.tell(found)

    async def run(self) -> None:
        """Raise them until cancelled."""
        while True:
            row = await self._new.get()
            text = (
                f"message {row.id} is not as it was stored, and is not shown: postroom admin verify"
            )
            try:
                await self._alert(Alert(KIND, text, about=row.id))
            except PostroomError:
                self._new.put_nowait(row)  # it is tried again
                raise

    def _found(self, row: MessageRow) -> None:
        if row.seq not in self._told and len(self._told) < MOST_TOLD:
            self._told.add(row.seq)
            self._new.put_nowait(row)
