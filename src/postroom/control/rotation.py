"""Rotation of keys while workers stay connected: the new key counts, all move to it, the former is dropped.

NATS knows a connection by the key that signed its credential, and a server knows its gateways by theirs. So workers are
asked to renew (`Renewal` in the sidecar, make before break), and the servers are asked who still holds a former key.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import nats.errors

from postroom.bus.host import BusHost, BusIdentity
from postroom.bus.nats.bus import NatsBus
from postroom.control.accounts import Accounts
from postroom.control.mailroom import system_connection
from postroom.errors import Conflict, PostroomError, ServerFailed
from postroom.identity import jwt
from postroom.identity.push import gather
from postroom.identity.trust import Role, Trust
from postroom.protocol import subjects
from postroom.protocol.ids import CONTROL_PLANE, is_uid

MOVE_TIMEOUT = 30.0
"""Seconds that workers have to move to a new key; who has not is cut when the former one is dropped."""

ASK_INTERVAL = 1.0
"""Seconds after which who still holds a former key is asked again."""

ANSWER_TIMEOUT = 2.0
"""Seconds that the servers have to say who is connected."""


@dataclass(frozen=True, slots=True)
class Rotated:
    """What became of a rotation.

    Attributes:
        roles: whose keys are new.
        cut: uids that had not moved in time; they connect again after their next start.
        steps: what a person must do, where the servers are somebody else's.
    """

    roles: tuple[str, ...]
    cut: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """As the API shows it."""
        return {"roles": list(self.roles), "cut": list(self.cut), "steps": list(self.steps)}


class Rotation:
    """Rotates the keys of one organisation and its post room, one kind at a time.

    Args:
        trust: has the keys.
        host: the servers.
        accounts: tells them the accounts.
        edge: the control plane's connection among the agents, which asks them to renew.
        renew_own: gives that connection a new credential.
        move_timeout: seconds that workers have.
    """

    def __init__(
        self,
        trust: Trust,
        host: BusHost,
        accounts: Accounts,
        edge: NatsBus,
        renew_own: Callable[[], Awaitable[None]],
        *,
        move_timeout: float = MOVE_TIMEOUT,
    ) -> None:
        self._trust = trust
        self._host = host
        self._accounts = accounts
        self._edge = edge
        self._renew_own = renew_own
        self._move_timeout = move_timeout
        self._turn = asyncio.Lock()

    async def rotate(self, kind: str) -> Rotated:
        """Rotate `agents`, `account`, `operator` or `proxy`.

        Raises:
            Conflict: another rotation is under way.
            ServerFailed: not every server took the new key; the former one counts on, and the next try drops it.
        """
        if self._turn.locked():
            raise Conflict("keys are being rotated already")
        async with self._turn:
            match kind:
                case "operator":
                    return await self._operator()
                case "proxy":
                    return await self._proxy()
                case "account":
                    return await self._signing(Role.AGENTS, Role.WORKERS, Role.CONTROL)
            return await self._signing(Role.AGENTS, Role.WORKERS)

    async def _signing(self, *roles: Role) -> Rotated:
        self._trust.rotate(*roles)
        await self._accounts.publish()
        if Role.CONTROL in roles:
            await self._renew_own()
        former = self._trust.former_keys(*roles)
        cut = await self._moved(lambda connection: connection.get("issuer_key") in former)
        self._trust.drop_former(*roles)
        await self._accounts.publish()
        return Rotated(tuple(role.value for role in roles), cut)

    async def _proxy(self) -> Rotated:
        self._trust.rotate(Role.PROXY)
        if not await self._host.reconfigure(self._identity(), restart=False):
            return self._by_hand(Role.PROXY)
        former = self._trust.former_keys(Role.PROXY)
        cut = await self._moved(lambda connection: _proxy_of(connection) in former)
        self._trust.drop_former(Role.PROXY)
        await self._host.reconfigure(self._identity(), restart=False)
        return Rotated((Role.PROXY.value,), cut)

    async def _operator(self) -> Rotated:
        self._trust.rotate(Role.OPERATOR)
        if self._host.pid == 0:
            return self._by_hand(Role.OPERATOR)
        # Our own server is the only one, and gets all accounts under the new signature with its start.
        self._trust.drop_former(Role.OPERATOR)
        await self._host.reconfigure(self._identity(), restart=True)
        await self._accounts.publish()
        return Rotated((Role.OPERATOR.value,))

    def _identity(self) -> BusIdentity:
        return BusIdentity(
            self._trust.operator_jwt, self._trust.account_jwts(), self._trust.proxies
        )

    def _by_hand(self, role: Role) -> Rotated:
        how = (
            "restart them one after the other" if role is Role.OPERATOR else "reload each (SIGHUP)"
        )
        steps = (
            f"put what `postroom nats config` prints now into every server's configuration and {how}",
            "then restart Postroom, which signs with the new key",
        )
        return Rotated((role.value,), steps=steps)

    async def _moved(self, holds: Callable[[dict[str, Any]], bool]) -> tuple[str, ...]:
        """Ask the workers whose connection `holds` to renew, until none does; who has not in time."""
        deadline = asyncio.get_running_loop().time() + self._move_timeout
        while holders := {_uid(c) for c in await self._connections() if holds(c)} - {""}:
            if asyncio.get_running_loop().time() >= deadline:
                break
            for uid in holders - {CONTROL_PLANE}:
                await self._edge.connection.publish(
                    subjects.renewal_notice(uid), secrets.token_bytes(8)
                )
            await asyncio.sleep(ASK_INTERVAL)  # no event tells when a worker has moved
        return tuple(sorted(holders))

    async def _connections(self) -> list[dict[str, Any]]:
        """Every connection to the agents' account, on every server."""
        subject = f"$SYS.REQ.ACCOUNT.{self._trust.edge_account}.CONNZ"
        asked = json.dumps({"auth": True, "limit": 100_000}).encode()
        found: list[dict[str, Any]] = []
        answered: set[str] = set()
        servers = 1

        def take(document: dict[str, Any]) -> bool:
            answered.add(str((document.get("server") or {}).get("id")))
            found.extend((document.get("data") or {}).get("connections") or ())
            return len(answered) >= servers

        try:
            system = await system_connection(self._host.address, self._trust.system_credential())
            try:
                servers = await _count(system)
                await gather(system, subject, asked, take, ANSWER_TIMEOUT)
            finally:
                with suppress(OSError, nats.errors.Error):
                    await system.close()
        except (OSError, nats.errors.Error) as error:
            raise ServerFailed(f"the servers cannot be asked who is connected: {error}") from error
        return found


async def _count(system: nats.NATS) -> int:
    seen: set[str] = set()
    size = 1

    def take(document: dict[str, Any]) -> bool:
        nonlocal size
        seen.add(str((document.get("server") or {}).get("id")))
        meta = (document.get("data") or {}).get("meta_cluster") or {}
        size = max(size, int(meta.get("cluster_size") or 1))
        return len(seen) >= size

    await gather(system, "$SYS.REQ.SERVER.PING.JSZ", b"", take, ANSWER_TIMEOUT)
    return max(1, len(seen))


def _uid(connection: dict[str, Any]) -> str:
    """Whom the credential names; "" for a connection that shows none."""
    try:
        name = str(jwt.decode(str(connection.get("jwt", "")))["name"])
    except (PostroomError, KeyError):
        return ""
    return name if is_uid(name) else ""


def _proxy_of(connection: dict[str, Any]) -> str:
    proxy = connection.get("proxy")
    return str(proxy.get("key", "")) if isinstance(proxy, dict) else ""
