"""Dead letters for people: list, requeue, drop."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace

from postroom.bus.port import MessageBusProvider
from postroom.errors import Conflict, InvalidInput, NotFound, ProtocolViolation
from postroom.mail import views
from postroom.mail.views import DeadLetter
from postroom.projection.changes import DEADLETTERS, FOLD_WAIT, Changes, of_message
from postroom.protocol import subjects
from postroom.protocol.deadletters import DEAD_DROPPED, is_of_task
from postroom.protocol.envelope import Envelope
from postroom.protocol.ids import ID_PREFIX, MAX_CANDIDATES, UID, message_id, only_one
from postroom.store.database import Database, Store
from postroom.store.messages import MessageRow
from postroom.store.records import DeadLetterRow

NUMBER_DIGITS = 19
"""A number with fewer digits than this can be a sequence of the log."""


class DeadLetterService:
    """The dead letters.

    `only` is the uid of the only party whose letters are there (`Principal.only`), "" for everybody's.
    """

    def __init__(
        self,
        bus: MessageBusProvider,
        database: Database,
        changes: Changes,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._bus = bus
        self._database = database
        self._changes = changes
        self._clock = clock

    async def all(self, limit: int = 50, before: int = 0, only: str = "") -> list[DeadLetter]:
        """The newest dead letters that were not dropped, newest first; with `before` those with a lower number."""
        return await self._database.read(
            lambda store: views.dead_letters(store, store.records.dead_letters(limit, before, only))
        )

    async def count(self, only: str = "") -> int:
        """The number of dead letters that were not dropped."""
        return await self._database.read(lambda store: store.records.count_dead_letters(only))

    async def get(self, letter: int) -> DeadLetter:
        """The dead letter with that id.

        Raises:
            NotFound: it does not exist, or was dropped.
        """
        row = await self._row(letter)
        return (await self._database.read(lambda store: views.dead_letters(store, [row])))[0]

    async def find(self, ref: str, only: str = "") -> int:
        """The id of a dead letter, from that id or from at least four leading digits of its message's id.

        Raises:
            NotFound: no dead letter fits.
        """
        number = int(ref) if ref.isascii() and ref.isdecimal() and len(ref) < NUMBER_DIGITS else 0
        row = await self._read(number) if number else None
        if row is not None and (not only or only in (row.sender, row.recipient)):
            return number
        found = []
        if ID_PREFIX.fullmatch(ref) or UID.fullmatch(ref):
            limit = MAX_CANDIDATES + 1
            found = await self._database.read(
                lambda store: store.records.dead_letters_of(ref, limit, only)
            )
        if only_one(ref, [row.message_id for row in found], "dead letters") is None:
            raise NotFound(
                f"there is no dead letter {ref[:64]!r}", remedy="postroom deadletters list"
            )
        return found[0].id

    async def requeue(self, letter: int) -> str:
        """Send the message again as a new one from the same sender. The dead letter stays, and is linked to the new
        message.

        A second requeue of one letter gives the same message. Returns the new message's id.

        Raises:
            NotFound: the letter does not exist, or was dropped.
            InvalidInput: its payload is not a message.
            Conflict: its sender or recipient is retired, or it stands for a task.
            StreamFull: the recipient's inbox is full; nothing was sent.
        """
        row = await self._row(letter)
        if is_of_task(row.origin):
            raise Conflict("it stands for a task, which is asked for again as a task")
        secret = await self._database.read(lambda store: _secret(store, row))
        again = _again(row, secret, self._clock())
        if await self._message(row.sender, again.id) is None:
            await self._bus.publish(row.subject, again.encode(), id=again.id)
            if row.origin.startswith("INBOX-"):  # only messages of INBOX are folded
                await self._changes.until(
                    of_message(again.id),
                    lambda: self._message(row.sender, again.id),
                    lambda folded: folded is not None,
                    FOLD_WAIT,
                )
        return again.id

    async def drop(self, letter: int) -> None:
        """Take the letter off the list for good; the log keeps the record.

        Raises:
            NotFound: it does not exist, or was dropped before.
        """
        row = await self._row(letter)
        headers = {DEAD_DROPPED: str(row.id)}
        # A subject of its own: the subject of the letter may be full.
        subject = subjects.deadletter(f"dropped.{row.id}")
        await self._bus.publish(subject, b"", metadata=headers)

        def read_again(store: Store) -> bool:
            found = store.records.dead_letter(letter)
            return found is None or found.dropped_at is not None

        await self._changes.until(
            DEADLETTERS, lambda: self._database.read(read_again), bool, FOLD_WAIT
        )

    async def _message(self, sender: str, new: str) -> MessageRow | None:
        return await self._database.read(lambda store: store.messages.message_of(sender, new))

    async def _row(self, letter: int) -> DeadLetterRow:
        row = await self._read(letter)
        if row is None:
            raise NotFound(f"there is no dead letter {letter}")
        return row

    async def _read(self, letter: int) -> DeadLetterRow | None:
        row = await self._database.read(lambda store: store.records.dead_letter(letter))
        return None if row is None or row.dropped_at is not None else row


def _secret(store: Store, row: DeadLetterRow) -> bytes:
    secret = store.agents.message_secret(row.sender)
    parties = store.agents.agents_by_uid((row.sender, row.recipient))
    if secret is None or len(parties) < len({row.sender, row.recipient}):
        raise Conflict("the sender or the recipient of this letter does not exist")
    if any(agent.retired for agent in parties.values()):
        raise Conflict("the sender or the recipient of this letter is retired")
    return secret


def _again(row: DeadLetterRow, secret: bytes, now: float) -> Envelope:
    try:
        dead = Envelope.decode(row.payload)
    except ProtocolViolation as error:
        raise InvalidInput(f"this letter was never a message: {error.message}") from error
    # "requeue" is not a uid, so no key that the sender itself uses can give this id.
    new = message_id(secret, "requeue", str(row.id))
    message = json.loads(json.dumps(dead.message)) | {"messageId": new}
    # The old deadline has passed, or the message missed it for another reason. A person decided to send it now.
    return replace(dead, id=new, message=message, sent_at=now, expires_at=0.0, requeue_of=dead.id)
