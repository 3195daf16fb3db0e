"""Telling the running servers about accounts that changed, over their system account.

A server that was started with the accounts preloaded needs no push; a revocation, a new key, or accounts made by an
older version of Postroom, do. A change counts only when every server of the cluster has taken it: a connection
to the one that has not would live on.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from postroom.bus.system import ask
from postroom.errors import PostroomError, ProtocolViolation, ServerFailed
from postroom.identity import jwt
from postroom.identity.trust import Trust
from postroom_a2a.nats.port import FAULTS, Connection, Frame, receive

PUSH_TIMEOUT = 5.0
"""Seconds the servers have for each answer."""

ROLL_TIMEOUT = 1.0
"""Seconds after which a server that has not answered is taken as absent; the others are told without it."""


async def push_accounts(
    connection: Connection,
    trust: Trust,
    *,
    changed: Collection[str] = (),
    timeout: float = PUSH_TIMEOUT,
) -> list[str]:
    """Give every server each account JWT that says something else than the one it has.

    Args:
        connection: of the system account, to any of the servers.
        trust: makes the accounts.
        changed: public keys of accounts that are known to have changed; the others are left alone. Without any the
            servers are asked which differ.
        timeout: seconds for each answer.

    Returns:
        Public keys of the accounts that were pushed.

    Raises:
        ServerFailed: a server refused one, or did not answer; with the names of those that did not.
        ProtocolViolation: an answer cannot be read.
    """
    roll = await _call_the_roll(connection, min(timeout, ROLL_TIMEOUT))
    pushed, missed = [], dict.fromkeys(roll.absent, "")
    for account, token in trust.account_jwts().items():
        if changed and account not in changed:
            continue
        # Of several servers the first to answer speaks for itself alone.
        several = len(roll.present) > 1 or roll.absent
        if changed or several or not await _is_current(connection, account, token, timeout):
            missed |= await _push(connection, roll.present, account, token, timeout)
            pushed.append(account)
    if missed and pushed:
        raise ServerFailed(
            f"{len(missed)} of {roll.size} servers did not take the accounts: " + ", ".join(missed),
            remedy="they are told again until they have; a connection to them may live as long",
        )
    return pushed


@dataclass
class _Roll:
    """The servers of the cluster.

    Attributes:
        present: id to name of those that answer.
        absent: names of those that do not, "?" for one whose name nobody tells.
        size: how many there are.
    """

    present: dict[str, str]
    absent: tuple[str, ...]
    size: int


async def _call_the_roll(connection: Connection, timeout: float) -> _Roll:
    """Who is there: every member of the cluster knows how many there are, and the leader their names."""
    present: dict[str, str] = {}
    names: set[str] = set()
    size = 1

    def take(document: dict[str, Any]) -> bool:
        nonlocal size
        server = document.get("server") or {}
        meta = (document.get("data") or {}).get("meta_cluster") or {}
        present[str(server.get("id"))] = str(server.get("name"))
        names.update(str(peer.get("name")) for peer in meta.get("replicas") or ())
        size = max(size, int(meta.get("cluster_size") or 1), len(present))
        return len(present) >= size

    await gather(connection, "$SYS.REQ.SERVER.PING.JSZ", b"", take, timeout)
    if not present:
        raise ServerFailed("no nats-server answers its system account")
    absent = sorted(names - set(present.values()))
    absent += ["?"] * (size - len(present) - len(absent))
    return _Roll(present, tuple(absent), size)


async def delete_accounts(
    connection: Connection, trust: Trust, *, timeout: float = PUSH_TIMEOUT
) -> None:
    """Have every server forget the accounts of removed organisations: every connection of theirs ends.

    Raises:
        ServerFailed: one refused, or did not answer.
        ProtocolViolation: an answer cannot be read.
        StateUnwritable: that it is done could not be kept.
    """
    gone = trust.gone
    if not gone:
        return
    roll = await _call_the_roll(connection, min(timeout, ROLL_TIMEOUT))
    missing = dict(roll.present)

    def take(document: dict[str, Any]) -> bool:
        data = document.get("data")
        if not isinstance(data, dict) or data.get("code") != 200:
            raise ServerFailed(f"a server keeps an account: {document.get('error', data)}")
        missing.pop(str((document.get("server") or {}).get("id")), None)
        return not missing

    payload = trust.deletion(gone).encode()
    await gather(connection, "$SYS.REQ.CLAIMS.DELETE", payload, take, timeout)
    if missing or roll.absent:
        keeping = ", ".join((*missing.values(), *roll.absent))
        raise ServerFailed(f"servers were not told that accounts are gone: {keeping}")
    trust.forgotten(gone)


async def _is_current(connection: Connection, account: str, token: str, timeout: float) -> bool:
    subject = f"$SYS.REQ.ACCOUNT.{account}.CLAIMS.LOOKUP"
    try:
        known = await ask(connection, subject, timeout=timeout)
    except FAULTS as error:
        raise ServerFailed(f"nats-server does not answer {subject}: {error}") from error
    if not known:
        return False
    try:
        return jwt.same_claims(jwt.decode(known.decode("ascii")), jwt.decode(token))
    except (UnicodeDecodeError, PostroomError):
        return False  # whatever the server has, it is not ours


async def _push(
    connection: Connection,
    servers: Mapping[str, str],
    account: str,
    token: str,
    timeout: float,
) -> dict[str, str]:
    """Push one account; the servers that did not say that they have it, by name."""
    missing = dict(servers)

    def take(document: dict[str, Any]) -> bool:
        data = document.get("data")
        fine = isinstance(data, dict) and data.get("code") == 200 and data.get("account") == account
        if not fine:
            said = document.get("error", data)
            raise ServerFailed(f"a server refused account {account}: {said}")
        missing.pop(str((document.get("server") or {}).get("id")), None)
        return not missing

    await gather(connection, "$SYS.REQ.CLAIMS.UPDATE", token.encode(), take, timeout)
    return dict.fromkeys(missing.values(), "")


async def gather(
    connection: Connection,
    subject: str,
    payload: bytes,
    take: Callable[[dict[str, Any]], bool],
    timeout: float,
) -> bool:
    """Ask all servers; False if `take` has not said True of an answer within `timeout` seconds.

    Raises:
        ServerFailed: the connection is gone.
        ProtocolViolation: an answer cannot be read.
    """
    answers: asyncio.Queue[bytes] = asyncio.Queue()

    def arrived(answer: Frame) -> None:
        answers.put_nowait(answer.data)

    inbox = connection.new_inbox()
    try:
        subscription = await receive(connection, inbox, arrived)
        try:
            await connection.publish(subject, payload, reply=inbox)
            async with asyncio.timeout(timeout):
                while not take(_document(await answers.get())):
                    pass
        except TimeoutError:
            return False
        finally:
            await subscription.unsubscribe()
    except FAULTS as error:
        raise ServerFailed(f"nats-server cannot be asked {subject}: {error}") from error
    return True


def _document(payload: bytes) -> dict[str, Any]:
    try:
        document = json.loads(payload)
    except ValueError as error:
        raise ProtocolViolation("the server's answer to an account push is not JSON") from error
    if not isinstance(document, dict):
        raise ProtocolViolation("the server's answer to an account push is no JSON object")
    return document
