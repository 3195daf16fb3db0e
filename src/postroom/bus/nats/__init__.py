"""The bus over NATS and JetStream.

The library (`postroom_a2a.nats`) has connection, answers, JetStream and pull loops. Here is what Postroom promises on
top of them: replies that name their sender, messages that a receiver may believe, deliveries that beat while they are
worked on (`delivery`), streams and consumers as they must be (`admin`).
"""

from postroom.bus.nats.admin import NatsAdmin, ensure_all
from postroom.bus.nats.bus import NatsBus

__all__ = ["NatsAdmin", "NatsBus", "ensure_all"]
