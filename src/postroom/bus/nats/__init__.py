"""The bus over NATS and JetStream.

The library (`postroom_a2a.nats`) has connection, answers, JetStream and pull loops. This package adds Postroom's
promises: replies that name their sender, checks of what a receiver may believe, deliveries with in-progress beats
(`delivery`), streams and consumers of the design (`admin`).
"""

from postroom.bus.nats.admin import NatsAdmin, ensure_all
from postroom.bus.nats.bus import NatsBus

__all__ = ["NatsAdmin", "NatsBus", "ensure_all"]
