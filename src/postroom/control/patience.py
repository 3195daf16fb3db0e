"""How long and how many HTTP connections may keep the control plane waiting.

Any process of this machine can connect without a key. Uvicorn waits for ever for a request that does not come or
does not end, so such connections would use up the descriptors of this process.
"""

from __future__ import annotations

import asyncio
import resource
from typing import ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

UNFINISHED = (h11.IDLE, h11.SEND_BODY)
"""States of a peer whose request has not come, or not to its end."""


def _half_of_descriptors() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft // 2 if soft > 0 else 10_000


class ImpatientProtocol(H11Protocol):
    """Cuts a connection whose request takes too long, and one too many.

    Attributes:
        deadline: seconds for a whole request; at the latest after twice as long the connection is cut.
        least: bytes in that time by which a request that takes longer is known to go on: a large upload.
        most: open connections of one listener; the other half of the descriptors is for the post room's work.
    """

    deadline: ClassVar[float] = 15.0
    least: ClassVar[int] = 64 * 1024
    most: ClassVar[int] = _half_of_descriptors()
    _timer: asyncio.TimerHandle | None = None
    _taken: int = 0

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Begin to count, or cut it at once."""
        super().connection_made(transport)
        if len(self.connections) > self.most:
            transport.abort()
        else:
            self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop counting."""
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Count what comes."""
        self._taken += len(data)
        super().data_received(data)

    def _watch(self) -> None:
        self._seen = self.cycle, self.conn.their_state
        self._taken = 0
        self._timer = self.loop.call_later(self.deadline, self._look)

    def _look(self) -> None:
        # The same request, or the same wait for one, as a whole deadline ago.
        now = self.cycle, self.conn.their_state
        if self.conn.their_state in UNFINISHED and now == self._seen and not self._goes_on():
            self.transport.abort()
        else:
            self._watch()

    def _goes_on(self) -> bool:
        """Whether somebody takes the request's body, and it comes."""
        taken = self.cycle is not None and not self.cycle.response_complete
        return taken and self._taken >= self.least
