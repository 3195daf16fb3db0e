"""When JetStream no longer answers over a server that is up, as one that is cut off from its cluster."""

from __future__ import annotations

from postroom_a2a.nats.connection import WireConnection
from postroom_a2a.nats.port import Connection


class Silence:
    """Since when requests of one kind have had no answer; the connection is told, which may then leave its server.

    Each kind has its own: a server that is cut off may go on answering what it knows by itself.
    """

    __slots__ = ("_leave", "_since")

    def __init__(self, connection: Connection) -> None:
        # A connection of nats-py stays where it is.
        self._leave = connection.leave if isinstance(connection, WireConnection) else None
        self._since: float | None = None

    def end(self) -> None:
        """Note an answer."""
        self._since = None

    def goes_on(self, since: float) -> None:
        """Note that a request has had no answer since that time of the loop's clock."""
        if self._since is None:
            self._since = since
        if self._leave is not None:
            self._leave(self._since)
