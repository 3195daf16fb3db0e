"""The parts that starting, watching and ending the workers of an organisation share.

One of them is the `Issuer`: it issues, renews and revokes their bus credentials, and keeps a list of them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from postroom.bus.port import BusAdmin
from postroom.directory.agents import Directory
from postroom.errors import Forbidden, ServerFailed
from postroom.gateway.credentials import BoundCredential
from postroom.gateway.port import GatewayProvider
from postroom.identity.account_publisher import Accounts
from postroom.identity.jwt import Credential
from postroom.identity.trust import Trust
from postroom.mail.alerts import AlertService
from postroom.observe import get_logger
from postroom.sandbox.opensandbox.remote import Remote
from postroom.sandbox.selftest import Canaries
from postroom.settings import Settings
from postroom.store.database import Database

log = get_logger(__name__)


class Issuer:
    """The register of credentials.

    A key is stored before its credential is handed out, and deleted after its revocation is on disk. A crash in between
    can only revoke a key twice.

    Args:
        lifetime: seconds that a credential is valid.
    """

    def __init__(
        self, database: Database, trust: Trust, accounts: Accounts, lifetime: float
    ) -> None:
        self._database = database
        self._trust = trust
        self._accounts = accounts
        self._lifetime = lifetime
        self._voiding = asyncio.Lock()

    async def issue(self, uid: str, projects: tuple[str, ...]) -> Credential:
        """Make a credential for worker `uid` under a new key."""
        now = time.time()
        credential = self._trust.mint_agent(
            uid, projects, lifetime=self._lifetime, now=now, proxied=True
        )
        key, expires = credential.public, now + self._lifetime
        await self._database.write(
            lambda store: store.credentials.add_credential(key, uid, expires)
        )
        return credential

    async def renew(self, key: str, uid: str, projects: tuple[str, ...]) -> str:
        """Make a new JWT for the key that worker `uid` is connected with.

        Raises:
            Forbidden: the worker has no such key; it may have been revoked a moment ago.
        """
        now = time.time()
        token = self._trust.renew(
            key, uid, projects, lifetime=self._lifetime, now=now, proxied=True
        )
        expires = now + self._lifetime
        if not await self._database.write(
            lambda store: store.credentials.prolong(key, uid, expires)
        ):
            raise Forbidden("the credential was not issued by this post room, or was revoked")
        return token

    async def void(self, uid: str = "") -> int:
        """Revoke every credential of one worker or of all; returns how many keys that were.

        Raises:
            StateUnwritable: nothing was revoked.
            ServerFailed: the revocation is on disk, but not every server has it; they get it later.
        """
        async with self._voiding:
            now = time.time()
            keys = await self._database.write(
                lambda store: store.credentials.keys_out(uid, now=now)
            )
            if not keys:
                return 0
            self._trust.revoke(keys, now=now)
            await self._database.write(lambda store: store.credentials.forget_keys(list(keys)))
        await self._accounts.publish()
        return len(keys)

    async def withdraw(self, uid: str = "") -> None:
        """As `void`, without an error for a server that is away: it gets the revocation later."""
        try:
            await self.void(uid)
        except ServerFailed as error:
            log.warning("revoked, but not everywhere yet: %s", error)


@dataclass(frozen=True, slots=True)
class WorkerParts:
    """The shared parts.

    Attributes:
        credentials: returns the secrets that the gateway may add to workers' requests now.
        canaries: what each sandbox is tried against.
        remote: where sandboxes of other machines run, None for nowhere.
        tasks: runs the watchers of sandboxes.
        changed: called when a worker has started or ended.
        space: raises `StateUnwritable` while the disk is full.
    """

    settings: Settings
    database: Database
    directory: Directory
    admin: BusAdmin
    issuer: Issuer
    gateway: GatewayProvider
    alerts: AlertService
    owner: str
    credentials: Callable[[], Sequence[BoundCredential]]
    canaries: Canaries
    remote: Remote | None
    tasks: asyncio.TaskGroup
    changed: Callable[[], None]
    space: Callable[[], None]
