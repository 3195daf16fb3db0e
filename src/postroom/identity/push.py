"""Telling a running server about accounts that changed, over its system account.

A server that was started with the accounts preloaded needs no push; a revocation, or accounts made by an older
version of Postroom, do.
"""

from __future__ import annotations

import json
from typing import Any

import nats.errors

from postroom.bus.system import SystemConnection
from postroom.errors import PostroomError, ProtocolViolation, ServerFailed
from postroom.identity import jwt
from postroom.identity.trust import Trust

PUSH_TIMEOUT = 5.0
"""Seconds the server has for each answer."""


async def push_accounts(
    connection: SystemConnection, trust: Trust, *, timeout: float = PUSH_TIMEOUT
) -> list[str]:
    """Give the server every account JWT that says something else than the one it has.

    Returns:
        Public keys of the accounts that were pushed.

    Raises:
        ServerFailed: the server refused one.
        ProtocolViolation: an answer cannot be read.
    """
    pushed = []
    for account, token in trust.account_jwts().items():
        if not await _is_current(connection, account, token, timeout):
            await _push(connection, account, token, timeout)
            pushed.append(account)
    return pushed


async def delete_accounts(
    connection: SystemConnection, trust: Trust, *, timeout: float = PUSH_TIMEOUT
) -> None:
    """Have the server forget the accounts of removed organisations: every connection of theirs ends.

    Raises:
        ServerFailed: the server refused.
        ProtocolViolation: an answer cannot be read.
        StateUnwritable: that it is done could not be kept.
    """
    gone = trust.gone
    if not gone:
        return
    payload = trust.deletion(gone).encode()
    document = _answer(await _ask(connection, "$SYS.REQ.CLAIMS.DELETE", payload, timeout))
    data = document.get("data")
    if not isinstance(data, dict) or data.get("code") != 200:
        raise ServerFailed(f"the server keeps an account: {document.get('error', data)}")
    trust.forgotten(gone)


async def _is_current(
    connection: SystemConnection, account: str, token: str, timeout: float
) -> bool:
    subject = f"$SYS.REQ.ACCOUNT.{account}.CLAIMS.LOOKUP"
    known = await _ask(connection, subject, b"", timeout)
    if not known:
        return False
    try:
        return jwt.same_claims(jwt.decode(known.decode("ascii")), jwt.decode(token))
    except (UnicodeDecodeError, PostroomError):
        return False  # whatever the server has, it is not ours


async def _push(connection: SystemConnection, account: str, token: str, timeout: float) -> None:
    document = _answer(await _ask(connection, "$SYS.REQ.CLAIMS.UPDATE", token.encode(), timeout))
    data = document.get("data")
    if isinstance(data, dict) and data.get("code") == 200 and data.get("account") == account:
        return
    raise ServerFailed(f"the server refused account {account}: {document.get('error', data)}")


async def _ask(connection: SystemConnection, subject: str, payload: bytes, timeout: float) -> bytes:
    try:
        return (await connection.request(subject, payload, timeout=timeout)).data
    except nats.errors.Error as error:
        raise ServerFailed(f"nats-server does not answer {subject}: {error}") from error


def _answer(payload: bytes) -> dict[str, Any]:
    try:
        document = json.loads(payload)
    except ValueError as error:
        raise ProtocolViolation("the server's answer to an account push is not JSON") from error
    if not isinstance(document, dict):
        raise ProtocolViolation("the server's answer to an account push is no JSON object")
    return document
