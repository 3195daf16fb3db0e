"""Publishes an organisation's accounts to every server: at once, and again until all have them."""

from __future__ import annotations

import asyncio

from postroom.bus.address import BusAddress
from postroom.bus.host import BusHost
from postroom.errors import BusDisconnected, PostroomError, ServerFailed, Unauthorized
from postroom.identity.credential import Credential
from postroom.identity.push import push_accounts
from postroom.identity.trust import Trust
from postroom.observe.supervision import well
from postroom_a2a.nats import WireConnection
from postroom_a2a.retry import RetryPolicy

SYSTEM_TIMEOUT = 5.0
"""Seconds in which a server must have let the system account in."""

RETRY = RetryPolicy(base=0.5, cap=30.0)
"""The pauses before servers that were away get the accounts again."""

BEHIND = "accounts-behind"
"""Kind of the alert that a server stays behind."""


class Accounts:
    """Publishes the accounts of one organisation.

    Args:
        behind: whether a server lacks the accounts from the start.
    """

    def __init__(self, trust: Trust, host: BusHost, *, behind: bool = False) -> None:
        self._trust = trust
        self._host = host
        self._one_at_a_time = asyncio.Lock()
        self._behind = asyncio.Event()
        self._every = behind
        if behind:
            self._behind.set()

    @property
    def behind(self) -> bool:
        """Whether a server still lacks the accounts."""
        return self._behind.is_set()

    async def publish(self, *, every: bool = False) -> None:
        """Push to every server; `run` tries failures again.

        Args:
            every: all accounts, not the agents' alone: the key that signs them has changed.

        Raises:
            ServerFailed: names the servers that lack them.
        """
        self._every = self._every or every
        async with self._one_at_a_time:
            try:
                await self._push()
                self._every = False
            except PostroomError:
                self._behind.set()
                raise
            self._behind.clear()

    async def _push(self) -> None:
        try:
            system = await system_connection(self._host.address, self._trust.system_credential())
        except (BusDisconnected, Unauthorized) as error:
            raise ServerFailed(f"no nats-server lets the system account in: {error}") from error
        try:
            # Core stays as it is: pushing it again breaks answers under way between the accounts.
            changed = self._trust.account_jwts() if self._every else (self._trust.edge_account,)
            await push_accounts(system, self._trust, changed=tuple(changed))
        finally:
            await system.close()

    async def run(self) -> None:
        """Push to servers that were away, for ever; while one stays away, it fails."""
        while True:
            await self._behind.wait()
            await self.publish()
            well()


async def system_connection(address: BusAddress, credential: Credential) -> WireConnection:
    """A connection of a user of the system account; raises Unauthorized or BusDisconnected."""
    return await address.connect(
        name="postroom-system", credentials=credential.for_connection(), wait=SYSTEM_TIMEOUT
    )
