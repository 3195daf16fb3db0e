"""The control plane's port to the NATS servers, be they its own child or an operator's cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from postroom.bus.address import BusAddress
from postroom_a2a.nats import WireConnection


class BusHost(Protocol):
    """The bus's server, or servers.

    `run` is a task of the control plane's TaskGroup and ends after `stop`.
    """

    @property
    def address(self) -> BusAddress:
        """The present address."""
        ...

    @property
    def version(self) -> str:
        """Version of the server, e.g. "2.15.1"."""
        ...

    @property
    def pid(self) -> int:
        """Process id of Postroom's own server, 0 for an operator's."""
        ...

    @property
    def replicas(self) -> int:
        """Copies of each stream."""
        ...

    @property
    def doubts(self) -> tuple[str, ...]:
        """Warnings for people about it, a sentence each."""
        ...

    async def check(self, system: WireConnection) -> None:
        """Check that the running server flushes a record before it acknowledges it.

        Raises:
            ServerFailed: it does not; with the remedy.
        """
        ...

    async def trust_proxies(self, proxies: Sequence[str]) -> bool:
        """Make the servers trust these gateways and no others; no connection ends for it.

        Returns:
            Whether each of them does now. An operator's servers are only asked: False if one does not trust all of
            these or does not answer.

        Raises:
            EnvironmentFault: Postroom's own server refused, and runs on as before.
        """
        ...

    async def trust_operator(
        self, operator_jwt: str, signers: Sequence[str], accounts: Mapping[str, str]
    ) -> bool:
        """Make Postroom's own server trust these signing keys of the operator and no others.

        The server restarts for that; connections come back by themselves.

        Args:
            operator_jwt: JWT with the keys.
            accounts: account public key -> account JWT.

        Returns:
            As `trust_proxies`.

        Raises:
            EnvironmentFault: it did not start.
        """
        ...

    async def run(self) -> None:
        """Supervise or watch it until `stop`."""
        ...

    async def stop(self) -> None:
        """End `run`, and the server if it is Postroom's own."""
        ...
