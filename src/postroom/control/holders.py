"""The agents that are connected under certain keys; and requests to them to renew."""

from __future__ import annotations

import json
import secrets
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from postroom.bus.host import BusHost
from postroom.errors import (
    BusDisconnected,
    PostroomError,
    RequestTimeout,
    ServerFailed,
    Unauthorized,
)
from postroom.identity import jwt
from postroom.identity.account_publisher import system_connection
from postroom.identity.trust import Trust
from postroom.protocol import subjects
from postroom.protocol.ids import CONTROL_PLANE, is_uid
from postroom_a2a.nats import WireConnection
from postroom_a2a.nats.system import ServerAnswer, gather, members

ANSWER_TIMEOUT = 2.0
"""Seconds that the servers have to list their connections."""


@dataclass(frozen=True, slots=True)
class Holder:
    """One connection of an agent.

    Attributes:
        keys: public keys that it depends on: the one that signed the credential, and its gateway's.
    """

    org: str
    uid: str
    keys: frozenset[str]


async def holders(trust: Trust, host: BusHost, keys: Collection[str]) -> list[Holder]:
    """The connections of agents, in every organisation and on every server, that depend on one of `keys`."""
    found: list[Holder] = []
    try:
        system = await system_connection(host.address, trust.system_credential())
        try:
            servers = max(1, len((await members(system, ANSWER_TIMEOUT)).present))
            for org in trust.orgs:
                for connection in await _connections(system, trust.of(org).edge_account, servers):
                    holder = _read(org, connection)
                    if holder.uid and holder.keys.intersection(keys):
                        found.append(holder)
        finally:
            await system.close()
    except (BusDisconnected, RequestTimeout, Unauthorized) as error:
        raise ServerFailed(f"the servers cannot be asked who is connected: {error}") from error
    return found


async def ask_to_renew(trust: Trust, host: BusHost, asked: Collection[Holder]) -> None:
    """Ask agents to renew now (`Renewal` in the sidecar, make before break)."""
    try:
        for org in sorted({holder.org for holder in asked}):
            edge = await system_connection(host.address, trust.of(org).edge_credential())
            try:
                for uid in {holder.uid for holder in asked if holder.org == org}:
                    await edge.publish(subjects.renewal_notice(uid), secrets.token_bytes(8))
                await edge.flush()
            finally:
                await edge.close()
    except (BusDisconnected, RequestTimeout, Unauthorized) as error:
        raise ServerFailed(f"workers cannot be asked to renew: {error}") from error


async def _connections(system: WireConnection, account: str, servers: int) -> list[dict[str, Any]]:
    asked = json.dumps({"auth": True, "limit": 100_000}).encode()
    found: list[dict[str, Any]] = []
    answered: set[str] = set()

    def take(answer: ServerAnswer) -> bool:
        answered.add(answer.server_id)
        found.extend(answer.data.get("connections") or ())
        return len(answered) >= servers

    await gather(system, f"$SYS.REQ.ACCOUNT.{account}.CONNZ", asked, take, ANSWER_TIMEOUT)
    if len(answered) < servers:
        raise ServerFailed(f"{len(answered)} of {servers} servers said who is connected")
    return found


def _read(org: str, connection: dict[str, Any]) -> Holder:
    """One connection; its uid is "" if it has no credential, or is the control plane's own."""
    proxy = connection.get("proxy")
    keys = {str(connection.get("issuer_key", ""))}
    keys.add(str(proxy.get("key", "")) if isinstance(proxy, dict) else "")
    try:
        uid = str(jwt.decode(str(connection.get("jwt", "")))["name"])
    except (PostroomError, KeyError):
        uid = ""
    return Holder(org, uid if is_uid(uid) and uid != CONTROL_PLANE else "", frozenset(keys - {""}))
