"""One stream in memory: records in order, bounds, de-duplication, expected sequences."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterator, Mapping

from postroom.bus.acceptance import MSG_ID
from postroom.bus.memory.clock import Clock
from postroom.bus.port import Message, Stored
from postroom.errors import LostUpdate, MessageTooLarge, NotFound, Refused, StreamFull
from postroom.protocol.permissions import matches
from postroom.protocol.streams import StreamSpec
from postroom.protocol.subjects import sender_of

LAST_SEQUENCE = "Nats-Expected-Last-Sequence"
LAST_SUBJECT_SEQUENCE = "Nats-Expected-Last-Subject-Sequence"
LAST_SUBJECT_FILTER = "Nats-Expected-Last-Subject-Sequence-Subject"

# With one of these a publisher would delete, delay or reorder records of others; Postroom's streams have them off.
_SWITCHED_OFF = frozenset(
    {"nats-rollup", "nats-ttl", "nats-schedule", "nats-incr", "nats-batch-id"}
)


def size_of(message: Message) -> int:
    """Bytes of a record, approximately as the server counts them."""
    headers = sum(len(name) + len(value) + 4 for name, value in message.metadata.items())
    return 22 + len(message.subject) + headers + len(message.payload)


class MemoryStream:
    """Keeps records within the bounds of its `StreamSpec`.

    Attributes:
        more: done when the next record is stored; then another future takes its place.
    """

    def __init__(self, spec: StreamSpec, clock: Clock) -> None:
        self.spec = spec
        self.last_sequence = 0
        self.more: asyncio.Future[None] = asyncio.Future()
        self._clock = clock
        self._records: OrderedDict[int, Message] = OrderedDict()
        self._of_subject: dict[str, OrderedDict[int, None]] = {}
        self._ids: OrderedDict[str, tuple[float, int]] = OrderedDict()
        self._bytes = 0

    def covers(self, subject: str) -> bool:
        """Whether this stream stores `subject`."""
        return any(matches(pattern, subject) for pattern in self.spec.subjects)

    def store(self, subject: str, payload: bytes, headers: Mapping[str, str]) -> Stored:
        """Store a record.

        Raises:
            StreamFull, LostUpdate, MessageTooLarge, Refused: nothing was stored.
        """
        self._forget_old()
        message_id = headers.get(MSG_ID, "")
        if message_id in self._ids:
            return Stored(self.spec.name, self._ids[message_id][1], duplicate=True)
        message = Message(
            id=message_id,
            sender_uid=sender_of(subject),
            subject=subject,
            payload=payload,
            metadata=dict(headers),
            timestamp=self._clock.now(),
            sequence=self.last_sequence + 1,
        )
        self._check_headers(message)
        self._make_room(message)
        self._add(message)
        if message_id:
            self._ids[message_id] = self._clock.now(), message.sequence
        return Stored(self.spec.name, message.sequence)

    def _check_headers(self, message: Message) -> None:
        if any(name.lower() in _SWITCHED_OFF for name in message.metadata):
            raise Refused(f"{message.subject!r} was not stored: a header is not permitted")
        expected = message.metadata.get(LAST_SEQUENCE)
        if expected is not None and int(expected) != self.last_sequence:
            raise LostUpdate(f"{message.subject!r}: wrong last sequence: {self.last_sequence}")
        expected = message.metadata.get(LAST_SUBJECT_SEQUENCE)
        if expected is not None:
            last = self.last(message.metadata.get(LAST_SUBJECT_FILTER, message.subject))
            found = last.sequence if last else 0
            if int(expected) != found:
                raise LostUpdate(f"{message.subject!r}: wrong last sequence: {found}")

    def _make_room(self, message: Message) -> None:
        spec, size = self.spec, size_of(message)
        if 0 < spec.max_message_bytes < size:
            raise MessageTooLarge(f"{size} bytes are over the limit of {spec.name}")
        same = self._of_subject.get(message.subject, ())
        subject_full = bool(spec.max_per_subject) and len(same) >= spec.max_per_subject
        if subject_full and spec.discard_new and spec.max_per_subject_refuses:
            raise StreamFull(f"{message.subject!r}: maximum messages per subject exceeded")
        if subject_full:
            self.delete(next(iter(same)))
        while self._is_full(size):
            if spec.discard_new or not self._records:
                raise StreamFull(f"{message.subject!r} was not stored: {spec.name} is full")
            self.delete(next(iter(self._records)))

    def _is_full(self, size: int) -> bool:
        too_many = 0 <= self.spec.max_messages <= len(self._records)
        return too_many or 0 < self.spec.max_bytes < self._bytes + size

    def _add(self, message: Message) -> None:
        self.last_sequence = message.sequence
        self._records[message.sequence] = message
        self._of_subject.setdefault(message.subject, OrderedDict())[message.sequence] = None
        self._bytes += size_of(message)
        stored, self.more = self.more, asyncio.Future()
        stored.set_result(None)

    def _forget_old(self) -> None:
        now = self._clock.now()
        while self._ids and next(iter(self._ids.values()))[0] <= now - self.spec.duplicate_window:
            self._ids.popitem(last=False)
        if self.spec.max_age:
            for message in list(self._records.values()):
                if message.timestamp > now - self.spec.max_age:
                    break
                self.delete(message.sequence)

    def find(self, sequence: int) -> Message | None:
        """The record at `sequence`, or None."""
        self._forget_old()
        return self._records.get(sequence)

    def get(self, sequence: int) -> Message:
        """The record at `sequence`."""
        message = self.find(sequence)
        if message is None:
            raise NotFound(f"{self.spec.name} has no record {sequence}")
        return message

    def after(self, sequence: int, filters: tuple[str, ...] = ()) -> Iterator[Message]:
        """Records after `sequence` that match a filter, in order; tolerates deletions meanwhile."""
        self._forget_old()
        if sequence >= self.last_sequence:
            return
        for message in list(self._records.values()):
            wanted = not filters or any(matches(each, message.subject) for each in filters)
            if message.sequence > sequence and wanted and message.sequence in self._records:
                yield message

    def last(self, pattern: str) -> Message | None:
        """The last record whose subject matches."""
        self._forget_old()
        for message in reversed(self._records.values()):
            if matches(pattern, message.subject):
                return message
        return None

    def delete(self, sequence: int) -> None:
        """Delete a record, if it exists."""
        message = self._records.pop(sequence, None)
        if message is None:
            return
        self._bytes -= size_of(message)
        same = self._of_subject[message.subject]
        del same[sequence]
        if not same:
            del self._of_subject[message.subject]

    def purge(self, pattern: str) -> int:
        """Delete the records whose subject matches, or all."""
        doomed = [m.sequence for m in self.after(0, (pattern,) if pattern else ())]
        for sequence in doomed:
            self.delete(sequence)
        return len(doomed)
