"""Moves undeliverable messages to DEADLETTER.

The server publishes an advisory when a consumer gives a message up. The mover stores the dead letter, appends the
receipt and acknowledges the advisory, in this order. After a crash between two steps the advisory comes again. A
repetition has no second effect: the failed delivery is the dead letter's key, and a repeated receipt changes nothing.
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
    ProtocolViolation,
    StreamFull,
)
from postroom.mail.clerk import Clerk
from postroom.observe import get_logger
from postroom.observe.supervision import well
from postroom.projection.fold import consumer
from postroom.protocol import priority, subjects
from postroom.protocol.deadletters import DEAD_ATTEMPTS, DEAD_ORIGIN, DEAD_REASON
from postroom.protocol.ids import CONTROL_PLANE
from postroom.protocol.intervals import ACK_WAIT
from postroom.protocol.priority import Requested, Update
from postroom.protocol.receipts import Reason, State
from postroom.protocol.records import read_record
from postroom.store.database import Database, Store
from postroom.store.messages import MessageRow
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
