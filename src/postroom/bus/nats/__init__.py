"""The bus over NATS and JetStream, on nats-py.

nats-py carries frames; everything that Postroom promises about them is made here: replies that name their
sender (`replies`), publishes that are on disk (`publishing`), pull loops (`pulling`), streams and consumers
(`admin`). nats-py's own request, JetStream publish and fetch are not used: their reply subjects do not fit.
"""

from postroom.bus.nats.admin import NatsAdmin, ensure_all
from postroom.bus.nats.bus import NatsBus

__all__ = ["NatsAdmin", "NatsBus", "ensure_all"]
