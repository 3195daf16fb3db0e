"""What the control plane needs of the NATS that carries it, be it our own child or somebody else's cluster."""

from __future__ import annotations

from typing import Protocol

from postroom.bus.address import BusAddress
from postroom.bus.system import SystemConnection


class BusHost(Protocol):
    """The bus's server, or servers.

    `run` is a task of the control plane's TaskGroup, which ends after `stop`.
    """

    @property
    def address(self) -> BusAddress:
        """How to connect, as of now."""
        ...

    @property
    def version(self) -> str:
        """Version of the server, e.g. "2.15.1"."""
        ...

    @property
    def pid(self) -> int:
        """Process id of our own server, 0 for somebody else's."""
        ...

    @property
    def replicas(self) -> int:
        """Copies of each stream."""
        ...

    @property
    def doubts(self) -> tuple[str, ...]:
        """What a person should know about it, a sentence each."""
        ...

    async def check(self, system: SystemConnection) -> None:
        """Ask the running server whether it keeps what it acknowledges.

        Raises:
            ServerFailed: it does not, with the remedy.
        """
        ...

    async def run(self) -> None:
        """Keep it up, or watch it, until `stop`."""
        ...

    async def stop(self) -> None:
        """End it, if it is ours, and `run`."""
        ...
