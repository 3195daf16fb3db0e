"""Sees to it that every server has the accounts as our keys say: at once, and again until all have."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress

import nats.errors

from postroom.bus.address import BusAddress
from postroom.bus.host import BusHost
from postroom.bus.nats.client import RobustClient
from postroom.errors import PostroomError, ServerFailed
from postroom.identity.credential import Credential
from postroom.identity.push import push_accounts
from postroom.identity.trust import Trust
from postroom.observe import get_logger
from postroom.protocol.alerts import Alert, RaiseAlert

log = get_logger(__name__)

CONNECT_TIMEOUT = 5.0
"""Seconds until a server must have let us in."""

FIRST_PAUSE = 0.5
LONGEST_PAUSE = 30.0
"""Seconds between attempts to tell servers that were away, before jitter."""

BEHIND = "accounts-behind"
"""Kind of the alerts."""


class Accounts:
    """Publishes the accounts of one organisation.

    Args:
        trust: makes them.
        host: where the servers are.
        alert: told kind and text once when a server is behind, and "" when it has caught up.
    """

    def __init__(self, trust: Trust, host: BusHost, alert: RaiseAlert) -> None:
        self._trust = trust
        self._host = host
        self._alert = alert
        self._one_at_a_time = asyncio.Lock()
        self._behind = asyncio.Event()
        self._every = False

    @property
    def behind(self) -> bool:
        """Whether a server has not been told yet."""
        return self._behind.is_set()

    async def publish(self, *, every: bool = False) -> None:
        """Tell every server; what fails is tried again by `run`.

        Args:
            every: all accounts, not the agents' alone: the key that signs them has changed.

        Raises:
            ServerFailed: not every server has it now; it names those that have not.
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
            async with asyncio.timeout(CONNECT_TIMEOUT):
                system = await system_connection(
                    self._host.address, self._trust.system_credential()
                )
        except (OSError, nats.errors.Error) as error:
            raise ServerFailed(f"no nats-server lets the system account in: {error}") from error
        try:
            # Core stays as it is: pushing it again breaks answers that are under way between the accounts.
            changed = self._trust.account_jwts() if self._every else (self._trust.edge_account,)
            await push_accounts(system, self._trust, changed=tuple(changed))
        finally:
            with suppress(OSError, nats.errors.Error):
                await system.close()

    async def run(self) -> None:
        """Tell servers that were away, for ever."""
        while True:
            await self._behind.wait()
            attempt = 0
            while self._behind.is_set():
                pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(attempt, 10))
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 (jitter)
                attempt += 1
                try:
                    await self.publish()
                except PostroomError as error:
                    log.warning("accounts: %s", error)
                    if attempt == 1:
                        await self._alert(Alert(BEHIND, str(error)))
                else:
                    await self._alert(Alert(BEHIND, ""))


async def system_connection(address: BusAddress, credential: Credential) -> RobustClient:
    """A connection of a user of the system account."""
    client = RobustClient()
    await client.connect(
        list(address.servers),
        tls=address.tls,
        tls_hostname=address.tls_name or None,
        tls_handshake_first=address.tls is not None,
        user_jwt_cb=credential.jwt_callback,
        signature_cb=credential.signature_callback,
        name="postroom-system",
    )
    return client
