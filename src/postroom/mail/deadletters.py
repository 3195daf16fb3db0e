"""Messages that could not be delivered: moved to DEADLETTER, listed, repeated, dropped.

The server says by an advisory that a consumer gave up. Moving is four steps, each of which may be the last before a
crash: store the dead letter, append the receipt, acknowledge the advisory. The advisory comes again until the last one
is done; a dead letter has the failed delivery as its key, and a receipt said twice has no second effect.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from postroom.bus.port import BusAdmin, Delivery, Message, MessageBusProvider
from postroom.errors import (
    MessageTooLarge,
    NotFound,
    PostroomError,
    ProtocolViolation,
    StreamFull,
)
from postroom.mail import projection
from postroom.mail.clerk import Clerk
from postroom.observe import get_logger
from postroom.projection.fold import consumer
from postroom.protocol import priority, subjects
from postroom.protocol.ids import CONTROL_PLANE
from postroom.protocol.priority import Requested, Update
from postroom.protocol.receipts import Reason, State
from postroom.protocol.records import read_record
from postroom.protocol.streams import ACK_WAIT
from postroom.store import messages, pending, records
from postroom.store.database import Connection, Database
from postroom.store.messages import MessageRow
from postroom_a2a.text import one_line

log = get_logger(__name__)

STREAM = "ADVISORIES"

MOVED = frozenset({"INBOX", "PRIORITY"})
"""Streams whose messages become dead letters: mail, and what somebody wants of a task (an end, an answer). A receipt, a
post or news of a task that one agent did not take is nobody's loss."""

KEPT_BYTES = 512 * 1024
"""How much of a payload too large for a dead letter is kept (no message of ours is; a stranger's record may be)."""

UNFOLDED_DELAY = 1.0
"""Seconds until an advisory about a message that is not folded yet is looked at again."""

POKE_INTERVAL = 5.0
POKE_LIMIT = 64
"""Consumers that are poked each time."""


@dataclass(frozen=True, slots=True)
class Advisory:
    """The server's word that a consumer gave a message up.

    Attributes:
        detail: the reason that a terminating consumer gave, "" where deliveries were exhausted.
    """

    stream: str
    consumer: str
    sequence: int
    attempts: int
    terminated: bool
    detail: str = ""

    @property
    def origin(self) -> str:
        """Which delivery failed; the key of its dead letter."""
        return f"{self.stream}-{self.sequence}-{self.consumer}"

    @property
    def reason(self) -> str:
        """For the receipt."""
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
    """Turns advisories into dead letters, and makes idle consumers give theirs.

    Args:
        bus: connection of the control plane.
        admin: reads the message, pokes consumers.
    """

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
            await self._poke_for_ever()
        finally:
            await subscription.close()

    async def handle(self, delivery: Delivery) -> None:
        """Move what one advisory is about; a fault of bus or disk gives it back (`consume`)."""
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
        """Whether everything is done; False while the message is not folded."""
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
            # News of a task that somebody did not take: the task itself says what it said.
            log.warning("%s did not take news of a task: %s", advisory.consumer, advisory.reason)
            return True
        row, folded = await self._database.read(lambda c: _known(c, advisory))
        if row is None and advisory.stream == "INBOX":
            return folded
        if row is not None and row.final and not _is_ours_to_keep(row):
            return True
        if await self._database.read(lambda c: records.dead_letter_of(c, advisory.origin)) is None:
            try:
                await self._store(advisory, message)
            except StreamFull as error:
                # Its sender is told all the same; others' letters must not wait for room that it has used up.
                log.warning("a dead letter is not kept: %s", error)
        if row is not None and not row.final:
            await self._clerk.report(row, State.DEAD, advisory.reason)
        return True

    async def _store(self, advisory: Advisory, message: Message) -> None:
        headers = {
            projection.DEAD_ORIGIN: advisory.origin,
            projection.DEAD_REASON: advisory.reason,
            projection.DEAD_ATTEMPTS: str(advisory.attempts),
        }
        subject = subjects.deadletter(message.subject)
        try:
            await self._bus.publish(subject, message.payload, id=advisory.origin, metadata=headers)
        except MessageTooLarge:
            cut = message.payload[:KEPT_BYTES]
            await self._bus.publish(subject, cut, id=advisory.origin, metadata=headers)

    async def _poke_for_ever(self) -> None:
        while True:
            await asyncio.sleep(POKE_INTERVAL * random.uniform(0.8, 1.2))  # noqa: S311 (jitter)
            try:
                await self.poke()
            except PostroomError as error:
                log.warning("idle consumers could not be looked at: %s", error)

    async def poke(self) -> None:
        """Make the consumers of agents that are waited for notice exhausted deliveries.

        The server counts a delivery as exhausted only when somebody pulls, and a dead worker does not.
        """
        before = self._clock() - ACK_WAIT
        waiting = await self._database.read(
            lambda c: pending.recipients_waited_for(c, before, POKE_LIMIT)
        )
        for uid in waiting:
            try:
                await self._admin.poke("INBOX", uid)
            except NotFound:
                log.debug("agent %s has no consumer", uid)


def _is_of_consumer(advisory: Advisory, message: Message) -> bool:
    """Whether the message was for the agent whose consumer gave it up.

    The server takes the sequence of a refusal (`+TERM`) from the subject of the acknowledgement, so an agent can
    refuse what was sent to another.
    """
    tokens = message.subject.split(".")
    return len(tokens) == 4 and tokens[1] == advisory.consumer


def _is_news(message: Message) -> bool:
    """Whether it is news of a task from the control plane; from anyone else it is a stranger's record."""
    try:
        record = priority.decode(message.payload)
    except ProtocolViolation:
        return False
    return isinstance(record, Update | Requested) and message.sender_uid == CONTROL_PLANE


def _known(connection: Connection, advisory: Advisory) -> tuple[MessageRow | None, bool]:
    """The message's row, and whether INBOX is folded past it: then it has no row because it was a duplicate.

    Both of one moment: folding between two questions would look like such a duplicate.
    """
    if advisory.stream != "INBOX":
        return None, True
    row = messages.message_at(connection, advisory.sequence)
    return row, records.cursor(connection, "INBOX") >= advisory.sequence


def _is_ours_to_keep(row: MessageRow) -> bool:
    """Whether a final message still belongs among the dead letters: a person may want to look at it."""
    kept = (Reason.UNDELIVERABLE.value, Reason.MALFORMED.value)
    return row.state == State.DEAD.value and row.reason.startswith(kept)
