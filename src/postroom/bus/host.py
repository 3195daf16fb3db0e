"""What the control plane needs of the NATS that carries it, be it our own child or somebody else's cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from postroom.bus.address import BusAddress
from postroom.bus.system import SystemConnection


@dataclass(frozen=True, slots=True)
class BusIdentity:
    """Whom a server trusts.

    Attributes:
        operator_jwt: JWT of the operator.
        accounts: account public key -> account JWT.
        proxies: public keys of the gateways.
    """

    operator_jwt: str
    accounts: Mapping[str, str]
    proxies: tuple[str, ...]


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

    async def check(self, system: SystemConnection) -> None:
        """Ask the running server whether it keeps what it acknowledges.

        Raises:
            ServerFailed: it does not, with the remedy.
        """
        ...

    async def reconfigure(self, identity: BusIdentity, *, restart: bool) -> bool:
        """Have the server trust `identity`; False if it is somebody else's, who must see to it.

        Args:
            identity: whom to trust from now on.
            restart: the operator differs, which no running server takes; connections come back by themselves.

        Raises:
            EnvironmentFault: it did not take it.
        """
        ...

    async def run(self) -> None:
        """Keep it up, or watch it, until `stop`."""
        ...

    async def stop(self) -> None:
        """End it, if it is ours, and `run`."""
        ...
