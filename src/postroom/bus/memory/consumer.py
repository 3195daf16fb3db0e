"""One durable consumer in memory: its next, pending, repeated and abandoned records."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from postroom.bus.memory.clock import Cancel, Clock
from postroom.bus.memory.stream import MemoryStream
from postroom.bus.port import Message
from postroom.protocol.permissions import matches
from postroom.protocol.streams import ConsumerSpec


class Taker(Protocol):
    """A consuming subscription."""

    @property
    def room(self) -> int:
        """The number of deliveries that it would take now."""

    def take(self, message: Message, attempt: int, pending: int) -> None:
        """Take one delivery."""


Advise = Callable[[str, int, int, str], None]
"""Gets (kind, sequence, deliveries, reason); kind is `MAX_DELIVERIES` or `MSG_TERMINATED`."""


@dataclass(slots=True)
class _Pending:
    """An unanswered delivery: its number of attempts, and the timer that ends the wait."""

    attempt: int
    cancel: Cancel


class MemoryConsumer:
    """Delivers the records of a stream to its takers.

    Args:
        clock: for `ack_wait` and delays.
        advise: called for each record that is given up.
    """

    def __init__(
        self, spec: ConsumerSpec, stream: MemoryStream, clock: Clock, advise: Advise
    ) -> None:
        self.spec = spec
        self._stream, self._clock, self._advise = stream, clock, advise
        self._position = stream.last_sequence if spec.start_new else max(0, spec.start_sequence - 1)
        self._attempts: dict[int, int] = {}
        self._pending: dict[int, _Pending] = {}
        self._again: deque[int] = deque()
        self._takers: deque[Taker] = deque()

    # Takers.

    def attach(self, taker: Taker) -> None:
        """Add a subscription."""
        self._takers.append(taker)
        self.pump()

    def detach(self, taker: Taker) -> None:
        """Remove a subscription; its pending deliveries come again after `ack_wait`."""
        if taker in self._takers:
            self._takers.remove(taker)

    def counts(self) -> tuple[int, int]:
        """(not yet delivered, delivered and not yet acknowledged)."""
        return sum(1 for _ in self._waiting()), len(self._pending) + len(self._again)

    # Delivering.

    def pump(self) -> None:
        """Deliver what is due."""
        while (taker := self._ready()) is not None:
            self._give_up()
            message = self._next()
            if message is None:
                return
            self._deliver(message, taker)

    def poke(self) -> None:
        """Notice exhausted deliveries, as a pull does."""
        self._give_up()

    def _ready(self) -> Taker | None:
        for _ in range(len(self._takers)):
            self._takers.rotate(-1)
            if self._takers[-1].room > 0:
                return self._takers[-1]
        return None

    def _next(self) -> Message | None:
        while self._again:
            message = self._stream.find(self._again.popleft())
            if message is not None:
                return message
        if len(self._pending) >= self.spec.max_ack_pending:
            return None
        message = next(iter(self._waiting()), None)
        if message is not None:
            self._position = message.sequence
        return message

    def _waiting(self) -> list[Message]:
        return list(self._stream.after(self._position, self.spec.filter_subjects))

    def _deliver(self, message: Message, taker: Taker) -> None:
        sequence = message.sequence
        attempt = self._attempts[sequence] = self._attempts.get(sequence, 0) + 1
        self._pending[sequence] = _Pending(attempt, self._timer(sequence, self.spec.ack_wait))
        taker.take(message, attempt, len(self._waiting()))

    def _timer(self, sequence: int, delay: float) -> Cancel:
        return self._clock.call_later(delay, lambda: self._due_again(sequence))

    def _due_again(self, sequence: int) -> None:
        pending = self._pending.pop(sequence, None)
        if pending is not None:
            pending.cancel()
            self._again.append(sequence)
            self.pump()

    def _give_up(self) -> None:
        for sequence in [s for s in self._again if self._attempts[s] >= self.spec.max_deliver > 0]:
            self._again.remove(sequence)
            self._advise("MAX_DELIVERIES", sequence, self._attempts.pop(sequence), "")

    # Answers; as on the server, those to an earlier attempt count like those to the last.

    def ack(self, sequence: int) -> None:
        """Settle the record."""
        self._settle(sequence)
        self.pump()

    def nak(self, sequence: int, delay: float) -> None:
        """Deliver it again after `delay` seconds."""
        pending = self._pending.get(sequence)
        if pending is None:
            return
        pending.cancel()
        if delay > 0:
            pending.cancel = self._timer(sequence, delay)
        else:
            self._due_again(sequence)

    def in_progress(self, sequence: int) -> None:
        """Restart the wait."""
        if (pending := self._pending.get(sequence)) is not None:
            pending.cancel()
            pending.cancel = self._timer(sequence, self.spec.ack_wait)

    def term(self, sequence: int, reason: str) -> None:
        """Never deliver it again."""
        attempts = self._attempts.get(sequence, 0)
        if self._settle(sequence):
            self._advise("MSG_TERMINATED", sequence, attempts, reason)
        self.pump()

    def _settle(self, sequence: int) -> bool:
        pending = self._pending.pop(sequence, None)
        if pending is not None:
            pending.cancel()
        elif sequence in self._again:
            self._again.remove(sequence)
        else:
            return False
        self._attempts.pop(sequence, None)
        return True

    def change(self, spec: ConsumerSpec) -> None:
        """Change filters and bounds; the start position stays."""
        self.spec = spec
        self.pump()

    def stored(self, subject: str) -> None:
        """Note a new record in the stream."""
        filters = self.spec.filter_subjects
        if not filters or any(matches(each, subject) for each in filters):
            self.pump()
