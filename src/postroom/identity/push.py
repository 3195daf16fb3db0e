"""Pushing changed accounts to the running servers, over their system account.

A server that starts with the accounts preloaded needs no push; a revocation, a new key, or accounts from an older
version of Postroom, do. A change counts only when every server of the cluster has it: a connection to one without it
would live on.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Mapping
from contextlib import contextmanager

from postroom.errors import PostroomError, ServerFailed, ServersBehind
from postroom.identity import jwt
from postroom.identity.trust import Trust
from postroom_a2a.nats.port import FAULTS, Connection
from postroom_a2a.nats.system import Members, ServerAnswer, ask_server, gather, members

PUSH_TIMEOUT = 5.0
"""Seconds that the servers have for each answer."""

ROLL_TIMEOUT = 1.0
"""Seconds after which a silent server counts as absent; the others get the accounts without it."""


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
