"""Publishes an organisation's accounts to every server, over the system account: at once, and until all have them.

A server that starts with the accounts preloaded needs no push; a revocation, a new key, or accounts from an older
version of Postroom, do. A change counts only when every server of the cluster has it: a connection to one without it
would live on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Generator, Mapping
from contextlib import contextmanager

from postroom.bus.address import BusAddress
from postroom.bus.host import BusHost
from postroom.errors import (
    BusDisconnected,
    PostroomError,
    ServerFailed,
    ServersBehind,
    Unauthorized,
)
from postroom.identity import jwt
from postroom.identity.jwt import Credential
from postroom.identity.trust import Trust
from postroom.observe.supervision import well
from postroom_a2a.nats import WireConnection
from postroom_a2a.nats.port import FAULTS, Connection
from postroom_a2a.nats.system import Members, ServerAnswer, ask_server, gather, members
from postroom_a2a.retry import RetryPolicy

SYSTEM_TIMEOUT = 5.0
"""Seconds in which a server must have let the system account in."""

RETRY = RetryPolicy(base=0.5, cap=30.0)
"""The pauses before servers that were away get the accounts again."""

BEHIND = "accounts-behind"
"""Kind of the alert that a server stays behind."""

PUSH_TIMEOUT = 5.0
"""Seconds that the servers have for each answer."""

ROLL_TIMEOUT = 1.0
"""Seconds after which a silent server counts as absent; the others get the accounts without it."""


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


async def push_accounts(
    connection: Connection,
    trust: Trust,
    *,
    changed: Collection[str] = (),
    timeout: float = PUSH_TIMEOUT,
) -> list[str]:
    """Give every server each account JWT that differs from its own.

    Args:
        connection: of the system account, to any of the servers.
        changed: public keys of accounts that are known to have changed; only they are pushed. Without any the servers
            are
            asked which differ.

    Returns:
        Public keys of the pushed accounts.

    Raises:
        ServersBehind: servers are away or did not answer, and the others have them; with the names of those without.
        ServerFailed: a server refused one, or none answered.
        ProtocolViolation: an answer cannot be read.
    """
    cluster = await _members(connection, timeout)
    pushed, missed = [], dict.fromkeys(cluster.absent, "")
    for account, token in trust.account_jwts().items():
        if changed and account not in changed:
            continue
        # The first of several servers to answer speaks for itself alone.
        several = len(cluster.present) > 1 or cluster.absent
        if changed or several or not await _is_current(connection, account, token, timeout):
            missed |= await _push(connection, cluster.present, account, token, timeout)
            pushed.append(account)
    if missed and pushed:
        kind = ServersBehind if len(missed) < cluster.size else ServerFailed
        raise kind(
            f"{len(missed)} of {cluster.size} servers did not take the accounts: "
            + ", ".join(missed),
            remedy="Postroom tries again until they have; a revoked connection may live until then",
        )
    return pushed


async def delete_accounts(
    connection: Connection, trust: Trust, *, timeout: float = PUSH_TIMEOUT
) -> None:
    """Have every server forget the accounts of removed organisations, which ends all their connections.

    Raises:
        ServerFailed: a server refused, or did not answer.
    """
    gone = trust.gone
    if not gone:
        return
    cluster = await _members(connection, timeout)
    missing = dict(cluster.present)

    def take(answer: ServerAnswer) -> bool:
        if answer.data.get("code") != 200:
            raise ServerFailed(f"a server keeps an account: {answer.error}")
        missing.pop(answer.server_id, None)
        return not missing

    payload = trust.deletion(gone).encode()
    with _asking():
        await gather(connection, "$SYS.REQ.CLAIMS.DELETE", payload, take, timeout)
    if missing or cluster.absent:
        keeping = ", ".join((*missing.values(), *cluster.absent))
        raise ServerFailed(f"servers still have accounts of removed organisations: {keeping}")
    trust.forgotten(gone)


async def _is_current(connection: Connection, account: str, token: str, timeout: float) -> bool:
    subject = f"$SYS.REQ.ACCOUNT.{account}.CLAIMS.LOOKUP"
    with _asking():
        known = await ask_server(connection, subject, timeout=timeout)
    if not known:
        return False
    try:
        return jwt.same_claims(jwt.decode(known.decode("ascii")), jwt.decode(token))
    except (UnicodeDecodeError, PostroomError):
        return False  # the server's JWT is not ours


async def _push(
    connection: Connection,
    servers: Mapping[str, str],
    account: str,
    token: str,
    timeout: float,
) -> dict[str, str]:
    """Push one account; return the servers that did not confirm it, by name."""
    missing = dict(servers)

    def take(answer: ServerAnswer) -> bool:
        if answer.data.get("code") != 200 or answer.data.get("account") != account:
            raise ServerFailed(f"a server refused account {account}: {answer.error}")
        missing.pop(answer.server_id, None)
        return not missing

    with _asking():
        await gather(connection, "$SYS.REQ.CLAIMS.UPDATE", token.encode(), take, timeout)
    return dict.fromkeys(missing.values(), "")


@contextmanager
def _asking() -> Generator[None]:
    """Turn the loss of the connection into the servers' fault, for callers with accounts to push."""
    try:
        yield
    except FAULTS as error:
        raise ServerFailed(f"nats-server cannot take accounts: {error}") from error


async def _members(connection: Connection, timeout: float) -> Members:
    with _asking():
        found = await members(connection, min(timeout, ROLL_TIMEOUT))
    if not found.present:
        raise ServerFailed("no nats-server answers its system account")
    return found
