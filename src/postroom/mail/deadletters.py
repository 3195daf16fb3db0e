"""Dead letters: undeliverable messages are moved to DEADLETTER; people list, requeue and drop them.

The server publishes an advisory when a consumer gives a message up. The mover stores the dead letter, appends the
receipt and acknowledges the advisory, in this order. After a crash between two steps the advisory comes again. A
repetition has no second effect: the failed delivery is the dead letter's key, and a repeated receipt changes nothing.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from postroom.bus.port import BusAdmin, Delivery, Message, MessageBusProvider
from postroom.errors import (
    Conflict,
    InvalidInput,
    MessageTooLarge,
    NotFound,
    ProtocolViolation,
    StreamFull,
)
from postroom.mail import views
from postroom.mail.clerk import Clerk
from postroom.mail.views import DeadLetter
from postroom.observe import get_logger
from postroom.observe.supervision import well
from postroom.projection.changes import DEADLETTERS, FOLD_WAIT, Changes, of_message
from postroom.projection.fold import consumer
from postroom.protocol import priority, subjects
from postroom.protocol.deadletters import (
    DEAD_ATTEMPTS,
    DEAD_DROPPED,
    DEAD_ORIGIN,
    DEAD_REASON,
    is_of_task,
)
from postroom.protocol.envelope import Envelope
from postroom.protocol.ids import (
    CONTROL_PLANE,
    ID_PREFIX,
    MAX_CANDIDATES,
    UID,
    message_id,
    only_one,
)
from postroom.protocol.intervals import ACK_WAIT
from postroom.protocol.priority import Requested, Update
from postroom.protocol.receipts import Reason, State
from postroom.protocol.records import read_record
from postroom.store.database import Database, Store
from postroom.store.messages import MessageRow
from postroom.store.records import DeadLetterRow
from postroom_a2a.text import one_line

log = get_logger(__name__)

STREAM = "ADVISORIES"

MOVED = frozenset({"INBOX", "PRIORITY"})
"""Streams whose messages become dead letters: messages, and cancels and answers for tasks. Nobody loses anything when
an agent does not take a receipt, a post or an update about a task.
"""

KEPT_BYTES = 512 * 1024
"""Bytes that are kept of a payload too large for a dead letter. Only a record from outside Postroom can be so large.
"""

UNFOLDED_DELAY = 1.0
"""Seconds until an advisory is tried again whose message is not folded yet."""

POKE_INTERVAL = 5.0
POKE_LIMIT = 64
"""The most consumers that one round pokes."""

NUMBER_DIGITS = 19
"""A number with fewer digits than this can be a sequence of the log."""


@dataclass(frozen=True, slots=True)
class Advisory:
    """The server's notice that a consumer gave a message up.

    Attributes:
        detail: the reason that a terminating consumer gave, "" where the attempts were used up.
    """

    stream: str
    consumer: str
    sequence: int
    attempts: int
    terminated: bool
    detail: str = ""

    @property
    def origin(self) -> str:
        """The failed delivery; the key of its dead letter."""
        return f"{self.stream}-{self.sequence}-{self.consumer}"

    @property
    def reason(self) -> str:
        """The reason that the receipt states."""
        if self.terminated and self.detail.startswith(f"{Reason.REFUSED.value}: "):
            return self.detail
        if self.terminated:
            return f"{Reason.UNDELIVERABLE.value}: {self.detail or 'refused by the recipient'}"
        return f"{Reason.UNDELIVERABLE.value}: {self.attempts} attempts"

    @classmethod
    def decode(cls, message: Message) -> Advisory:
        """The advisory in a record of ADVISORIES (NATS JetStream advisories `max_deliver`, `terminated`)."""
        record = read_record(message.payload)
        try:
            return cls(
                stream=str(record["stream"]),
                consumer=str(record["consumer"]),
                sequence=int(record["stream_seq"]),
                attempts=int(record.get("deliveries", 0)),
                terminated=".MSG_TERMINATED." in message.subject,
                detail=one_line(str(record.get("reason", "")), 300),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise ProtocolViolation(f"not an advisory: {error}") from error


class DeadLetterMover:
    """Turns advisories into dead letters, and makes idle consumers report exhausted deliveries."""

    def __init__(
        self,
        bus: MessageBusProvider,
        admin: BusAdmin,
        database: Database,
        clerk: Clerk,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._bus = bus
        self._admin = admin
        self._database = database
        self._clerk = clerk
        self._clock = clock

    async def run(self) -> None:
        """Move and poke until cancelled."""
        await self._admin.ensure_consumer(consumer(STREAM))
        subscription = await self._bus.consume(STREAM, consumer(STREAM).durable, self.handle)
        try:
            while True:
                await asyncio.sleep(POKE_INTERVAL * random.uniform(0.8, 1.2))  # noqa: S311 (jitter)
                await self.poke()
                well()
        finally:
            await subscription.close()

    async def handle(self, delivery: Delivery) -> None:
        """Move the message of one advisory; after a fault of bus or disk the advisory comes again (`consume`)."""
        try:
            advisory = Advisory.decode(delivery.message)
        except ProtocolViolation as error:
            log.warning("record %d of %s: %s", delivery.message.sequence, STREAM, error)
            await delivery.term("not an advisory")
            return
        if advisory.stream in MOVED and not await self._move(advisory):
            await delivery.nak(UNFOLDED_DELAY)
            return
        await delivery.ack()

    async def _move(self, advisory: Advisory) -> bool:
        """Move one message; False while the message is not folded."""
        try:
            message = await self._admin.get(advisory.stream, advisory.sequence)
        except NotFound:
            return True  # deleted: its final state was folded long ago
        if not _is_of_consumer(advisory, message):
            log.warning(
                "%s refused a delivery that it never had: %s", advisory.consumer, advisory.origin
            )
            return True
        if advisory.stream == "PRIORITY" and _is_news(message):
            # An update about a task that an agent did not take: the task itself holds the change.
            log.warning("%s did not take news of a task: %s", advisory.consumer, advisory.reason)
            return True
        row, folded = await self._database.read(lambda store: _known(store, advisory))
        if row is None and advisory.stream == "INBOX":
            return folded
        if row is not None and row.final and not _is_ours_to_keep(row):
            return True
        if (
            await self._database.read(lambda store: store.records.dead_letter_of(advisory.origin))
            is None
        ):
            try:
                await self._store(advisory, message)
            except StreamFull as error:
                # The sender gets its receipt all the same. Letters of others must not wait for room that this sender
                # used up.
                log.warning("a dead letter is not kept: %s", error)
        if row is not None and not row.final:
            await self._clerk.report(row, State.DEAD, advisory.reason)
        return True

    async def _store(self, advisory: Advisory, message: Message) -> None:
        headers = {
            DEAD_ORIGIN: advisory.origin,
            DEAD_REASON: advisory.reason,
            DEAD_ATTEMPTS: str(advisory.attempts),
        }
        subject = subjects.deadletter(message.subject)
        try:
            await self._bus.publish(subject, message.payload, id=advisory.origin, metadata=headers)
        except MessageTooLarge:
            cut = message.payload[:KEPT_BYTES]
            await self._bus.publish(subject, cut, id=advisory.origin, metadata=headers)

    async def poke(self) -> None:
        """Make the consumers of agents with old unconfirmed messages notice exhausted deliveries.

        The server counts a delivery as exhausted only when the agent pulls, and a dead worker does not pull.
        """
        before = self._clock() - ACK_WAIT
        waiting = await self._database.read(
            lambda store: store.pending.recipients_waited_for(before, POKE_LIMIT)
        )
        for uid in waiting:
            try:
                await self._admin.poke("INBOX", uid)
            except NotFound:
                log.debug("agent %s has no consumer", uid)


def _is_of_consumer(advisory: Advisory, message: Message) -> bool:
    """Whether the message was for the agent whose consumer gave it up.

    The server takes the sequence of a refusal (`+TERM`) from the subject of the acknowledgement, so an agent can name
    a message to another agent.
    """
    tokens = message.subject.split(".")
    return len(tokens) == 4 and tokens[1] == advisory.consumer


def _is_news(message: Message) -> bool:
    """Whether the control plane wrote this update about a task; a record from anyone else is not one."""
    try:
        record = priority.decode(message.payload)
    except ProtocolViolation:
        return False
    return isinstance(record, Update | Requested) and message.sender_uid == CONTROL_PLANE


def _known(store: Store, advisory: Advisory) -> tuple[MessageRow | None, bool]:
    """The message's row, and whether INBOX is folded past it: then it has no row because it was a duplicate.

    One transaction reads both: a fold between two reads would look like a duplicate.
    """
    if advisory.stream != "INBOX":
        return None, True
    row = store.messages.message_at(advisory.sequence)
    return row, store.cursor("INBOX") >= advisory.sequence


def _is_ours_to_keep(row: MessageRow) -> bool:
    """Whether a final message still belongs among the dead letters, because a person may want to see it."""
    kept = (Reason.UNDELIVERABLE.value, Reason.MALFORMED.value)
    return row.state == State.DEAD.value and row.reason.startswith(kept)


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
    if secret is None and store.agents.anywhere(row.sender) is not None:
        raise Conflict("its sender is of another organisation, and may send it again from there")
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
