"""The control plane's connection among the agents."""

from __future__ import annotations

from contextlib import AsyncExitStack

from postroom.bus.host import BusHost
from postroom.bus.nats.bus import NatsBus
from postroom.identity.trust import Trust
from postroom.observe import get_logger
from postroom.protocol.ids import CONTROL_PLANE

log = get_logger(__name__)


class EdgeSeat:
    """The control plane's connection among the agents.

    Attributes:
        bus: the connection.
    """

    bus: NatsBus

    def __init__(self, trust: Trust) -> None:
        self._trust = trust
        self._credential = trust.edge_credential()

    @classmethod
    async def open(cls, trust: Trust, host: BusHost, stack: AsyncExitStack) -> EdgeSeat:
        """Connect; `stack` closes it."""
        seat = cls(trust)
        seat.bus = await NatsBus.connect(
            host.address,
            uid=CONTROL_PLANE,
            jwt=lambda: seat._credential.jwt,
            sign=seat._sign,
            name="postroom-edge",
            on_error=lambda error: log.warning("edge: %s", error),
        )
        stack.push_async_callback(seat.bus.close)
        return seat

    def _sign(self, nonce: bytes) -> bytes:
        return self._credential.sign(nonce)

    async def renew(self) -> None:
        """Go on with a credential of the present key."""
        self._credential = self._trust.edge_credential()
        await self.bus.renew()
