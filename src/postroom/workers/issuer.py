"""Issues, renews and voids the bus credentials of an organisation's workers, and knows which are out."""

from __future__ import annotations

import asyncio
import time

from postroom.errors import Forbidden, ServerFailed
from postroom.identity.account_publisher import Accounts
from postroom.identity.credential import Credential
from postroom.identity.trust import Trust
from postroom.observe import get_logger
from postroom.store import credentials as rows
from postroom.store.database import Database

log = get_logger(__name__)


class Issuer:
    """The register of credentials.

    A key is written down before its credential goes out, and struck out after its revocation is on disk, so that a
    crash in between can only revoke a key twice.

    Args:
        database: where the keys are written down.
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
        """A credential of worker `uid` under a new key."""
        now = time.time()
        credential = self._trust.mint_agent(
            uid, projects, lifetime=self._lifetime, now=now, proxied=True
        )
        key, expires = credential.public, now + self._lifetime
        await self._database.write(lambda c: rows.add_credential(c, key, uid, expires))
        return credential

    async def renew(self, key: str, uid: str, projects: tuple[str, ...]) -> str:
        """A new JWT for the key that worker `uid` is connected with.

        Raises:
            Forbidden: no such key of the worker is out; it may have been revoked a moment ago.
        """
        now = time.time()
        token = self._trust.renew(
            key, uid, projects, lifetime=self._lifetime, now=now, proxied=True
        )
        expires = now + self._lifetime
        if not await self._database.write(lambda c: rows.prolong(c, key, uid, expires)):
            raise Forbidden("the credential was not issued by this post room, or was revoked")
        return token

    async def void(self, uid: str = "") -> int:
        """Revoke every credential that is out, of one worker or of all; how many keys that were.

        On disk when this raises or returns; every server has it when it returns.

        Raises:
            StateUnwritable: it could not be kept; nothing was revoked.
            ServerFailed: not every server was told; they are told later.
        """
        async with self._voiding:
            now = time.time()
            keys = await self._database.write(lambda c: rows.keys_out(c, uid, now=now))
            if not keys:
                return 0
            self._trust.revoke(keys, now=now)
            await self._database.write(lambda c: rows.forget_keys(c, list(keys)))
        await self._accounts.publish()
        return len(keys)

    async def withdraw(self, uid: str = "") -> None:
        """As `void`, where nobody waits for a server that is away: it hears of it later."""
        try:
            await self.void(uid)
        except ServerFailed as error:
            log.warning("revoked, but not everywhere yet: %s", error)
