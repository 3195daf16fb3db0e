"""The bus in memory: a twin of the NATS implementation that ships for tests.

It keeps the same promises, proved by the same suite: bounded streams, de-duplication, durable consumers,
redelivery, dead-letter advisories, rights. It has one account where NATS has two: what the control plane does
live reaches agents at once. Time can be a test's own (`ManualClock`).
"""

from postroom.bus.memory.admin import MemoryAdmin
from postroom.bus.memory.broker import MemoryBroker
from postroom.bus.memory.bus import MemoryBus
from postroom.bus.memory.clock import Clock, LoopClock, ManualClock

__all__ = ["Clock", "LoopClock", "ManualClock", "MemoryAdmin", "MemoryBroker", "MemoryBus"]
