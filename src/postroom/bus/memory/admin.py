"""`MemoryAdmin`: `BusAdmin` over a memory broker."""

from __future__ import annotations

from collections.abc import AsyncIterator

from postroom.bus.memory.broker import MemoryBroker
from postroom.bus.port import Message
from postroom.protocol.streams import ConsumerSpec, StreamSpec


class MemoryAdmin:
    """Implements `BusAdmin`."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker

    async def ensure_stream(self, spec: StreamSpec) -> None:
        """As `BusAdmin.ensure_stream`."""
        self._broker.ensure_stream(spec)

    async def ensure_consumer(self, spec: ConsumerSpec) -> None:
        """As `BusAdmin.ensure_consumer`."""
        self._broker.ensure_consumer(spec)

    async def delete_consumer(self, stream: str, durable: str) -> None:
        """As `BusAdmin.delete_consumer`."""
        self._broker.delete_consumer(stream, durable)

    async def replay(
        self, stream: str, *, after: int = 0, subjects: tuple[str, ...] = ()
    ) -> AsyncIterator[Message]:
        """As `BusAdmin.replay`."""
        records = self._broker.stream(stream)
        end = records.last_sequence
        for message in list(records.after(after, subjects)):
            if message.sequence <= end:
                yield message

    async def get(self, stream: str, sequence: int) -> Message:
        """As `BusAdmin.get`."""
        return self._broker.stream(stream).get(sequence)

    async def last(self, stream: str, subject: str) -> Message | None:
        """As `BusAdmin.last`."""
        return self._broker.stream(stream).last(subject)

    async def delete(self, stream: str, sequence: int) -> None:
        """As `BusAdmin.delete`."""
        self._broker.stream(stream).delete(sequence)

    async def purge(self, stream: str, subject: str = "") -> int:
        """As `BusAdmin.purge`."""
        return self._broker.stream(stream).purge(subject)

    async def pending(self, stream: str, durable: str) -> tuple[int, int]:
        """As `BusAdmin.pending`."""
        return self._broker.consumer(stream, durable).counts()

    async def poke(self, stream: str, durable: str) -> None:
        """As `BusAdmin.poke`."""
        self._broker.consumer(stream, durable).poke()

    async def last_sequence(self, stream: str) -> int:
        """As `BusAdmin.last_sequence`."""
        return self._broker.stream(stream).last_sequence
