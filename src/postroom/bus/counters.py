"""The mutable counters behind `BusStatistics`, for both implementations of the bus."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from postroom.bus.port import BusStatistics


@dataclass(slots=True)
class Counters:
    """The counters of a bus; the names are those of `BusStatistics`."""

    published: int = 0
    received: int = 0
    acked: int = 0
    refused: int = 0
    ignored: int = 0
    dropped: int = 0
    handler_errors: int = 0
    reconnects: int = 0

    def frozen(self, *, open_deliveries: int, connected: bool) -> BusStatistics:
        """A snapshot for `statistics`."""
        return BusStatistics(**asdict(self), open_deliveries=open_deliveries, connected=connected)
