"""Rotation of keys while workers stay connected: the new key counts, all move to it, the former is dropped.

NATS knows a connection by the key that signed its credential, and a server knows its gateways by theirs. So the
control plane asks workers to renew, which makes a new connection, and asks the servers which connections still use a
former key. A key that the servers' configuration must name (operator, gateway) is used only when every server knows
it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from postroom.bus.host import BusHost
from postroom.control.holders import ask_to_renew, holders
from postroom.errors import Conflict
from postroom.identity.account_publisher import Accounts
from postroom.identity.rotating import Role
from postroom.identity.trust import Trust
from postroom.protocol import answers

MOVE_TIMEOUT = 30.0
"""Seconds that workers have to move to a new key; the others are cut when the former one is dropped."""

ASK_INTERVAL = 1.0
"""Seconds between two requests to the agents that still use a former key."""


@dataclass(frozen=True, slots=True)
class Rotated:
    """The outcome of a rotation.

    Attributes:
        cut: uids that had not moved in time; a restart brings them back.
        steps: what a person must do, where the servers are somebody else's.
    """

    roles: tuple[str, ...]
    cut: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()

    def as_json(self) -> answers.Rotated:
        """Its form in the API."""
        return {"roles": list(self.roles), "cut": list(self.cut), "steps": list(self.steps)}


class Rotation:
    """Rotates the keys of one organisation and its post room, one kind at a time.

    Args:
        renew_own: gives the control plane's connection to the agents' account a new credential.
        sign: signs all messages in the database with a new key.
    """

    def __init__(
        self,
        trust: Trust,
        host: BusHost,
        accounts: Accounts,
        renew_own: Callable[[], Awaitable[None]],
        *,
        move_timeout: float = MOVE_TIMEOUT,
        sign: Callable[[], Awaitable[None]],
    ) -> None:
        self._trust = trust
        self._host = host
        self._accounts = accounts
        self._renew_own = renew_own
        self._move_timeout = move_timeout
        self._sign = sign
        self._turn = asyncio.Lock()

    async def rotate(self, kind: str) -> Rotated:
        """Rotate `agents`, `account`, `operator`, `proxy` or `messages`.

        Raises:
            Conflict: another rotation is under way; or somebody else's servers do not know the new key yet. Then the
                new key signs nothing, and the remedy says what to do.
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
                case "messages":
                    await self._sign()
                    return Rotated(("messages",))
                case "account":
                    return await self._signing(Role.AGENTS, Role.WORKERS, Role.CONTROL)
            return await self._signing(Role.AGENTS, Role.WORKERS)

    async def _signing(self, *roles: Role) -> Rotated:
        self._trust.rotate(*roles)
        await self._accounts.publish()
        if Role.CONTROL in roles:
            await self._renew_own()
        cut = await self._moved(*roles)
        self._trust.drop_former(*roles)
        await self._accounts.publish()
        return Rotated(tuple(role.value for role in roles), cut)

    async def _proxy(self) -> Rotated:
        self._trust.prepare(Role.PROXY)
        if not await self._host.trust_proxies(self._trust.proxies):
            raise _unknown_key("proxy", "have each read it again (SIGHUP)")
        self._trust.rotate(Role.PROXY)
        cut = await self._moved(Role.PROXY)
        self._trust.drop_former(Role.PROXY)
        known = await self._host.trust_proxies(self._trust.proxies)
        return Rotated((Role.PROXY.value,), cut, () if known and self._host.pid else (_LAST_STEP,))

    async def _operator(self) -> Rotated:
        if self._host.pid:
            # Our only server gets all accounts under the new signature at its start.
            self._trust.rotate(Role.OPERATOR)
            self._trust.drop_former(Role.OPERATOR)
            await self._host.trust_operator(
                self._trust.operator_jwt, self._trust.signers, self._trust.account_jwts()
            )
            return Rotated((Role.OPERATOR.value,))
        self._trust.prepare(Role.OPERATOR)
        if not await self._host.trust_operator(
            self._trust.operator_jwt, self._trust.signers, self._trust.account_jwts()
        ):
            raise _unknown_key("operator", "start them again one after the other")
        self._trust.rotate(Role.OPERATOR)
        await self._accounts.publish(every=True)
        self._trust.drop_former(Role.OPERATOR)
        return Rotated((Role.OPERATOR.value,), steps=(_LAST_STEP,))

    async def _moved(self, *roles: Role) -> tuple[str, ...]:
        """Ask agents on a former key of `roles` to renew until all have; returns those that had not in time."""
        former = self._trust.former_keys(*roles)
        deadline = asyncio.get_running_loop().time() + self._move_timeout
        while held := await holders(self._trust, self._host, former):
            if asyncio.get_running_loop().time() >= deadline:
                break
            await ask_to_renew(self._trust, self._host, held)
            await asyncio.sleep(ASK_INTERVAL)  # no event tells when a worker has moved
        return tuple(sorted({holder.uid for holder in held}))


_LAST_STEP = "put what `postroom nats config` prints now into every server's configuration, without the former key"


def _unknown_key(kind: str, how: str) -> Conflict:
    return Conflict(
        f"the servers do not know the next key of the {kind} yet",
        remedy=(
            f"put what `postroom nats config` prints now into every server's configuration, {how}, then "
            f"`postroom keys rotate --{kind}` again"
        ),
    )
