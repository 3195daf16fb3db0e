"""What the control plane needs of the NATS that carries it, be it our own child or somebody else's cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from postroom.bus.address import BusAddress
from postroom_a2a.nats import WireConnection


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

    async def check(self, system: WireConnection) -> None:
        """Ask the running server whether it keeps what it acknowledges.

        Raises:
            ServerFailed: it does not, with the remedy.
        """
        ...

    async def trust_proxies(self, proxies: Sequence[str]) -> bool:
        """Have the servers trust these gateways and no others; no connection ends for it.

        Returns:
            Whether each of them does now. Somebody else's are not told but asked: False if one does not trust all
            of these, or does not answer.

        Raises:
            EnvironmentFault: our own server did not take it, and runs on as it was.
        """
        ...

    async def trust_operator(
        self, operator_jwt: str, signers: Sequence[str], accounts: Mapping[str, str]
    ) -> bool:
        """Have our own server trust these signing keys of the operator and no others.

        It is started again for that; connections come back by themselves.

        Args:
            operator_jwt: JWT of the operator, with the keys.
            accounts: account public key -> account JWT.

        Returns:
            As `trust_proxies`.

        Raises:
            EnvironmentFault: it did not start.
        """
        ...

    async def run(self) -> None:
        """Keep it up, or watch it, until `stop`."""
        ...

    async def stop(self) -> None:
        """End it, if it is ours, and `run`."""
        ...
