"""The bus in memory: a twin of the NATS implementation that ships for tests.

One suite proves the same promises for both: bounded streams, de-duplication, durable consumers, redelivery, dead-letter
advisories, permissions. It has one account where NATS has two: live messages of the control plane reach agents at once.
A test can set the time (`ManualClock`).
"""

from postroom.bus.memory.admin import MemoryAdmin
from postroom.bus.memory.broker import MemoryBroker
from postroom.bus.memory.bus import MemoryBus
from postroom.bus.memory.clock import Clock, LoopClock, ManualClock

__all__ = ["Clock", "LoopClock", "ManualClock", "MemoryAdmin", "MemoryBroker", "MemoryBus"]
