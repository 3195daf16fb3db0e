"""The bus over NATS and JetStream: a thin provider on the library's connection, JetStream and pulls.

What is the bus's own: which frames count as real (`postroom.bus.acceptance`), deliveries that are handed over one at a
time (`delivery`), live messages and requests (`listening`), and the streams of the design (`config`, `admin`).
"""

from postroom.bus.nats.admin import NatsAdmin, ensure_all
from postroom.bus.nats.bus import NatsBus

__all__ = ["NatsAdmin", "NatsBus", "ensure_all"]
