"""The PIN of who asks for something, on each route that demands it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection

from pydantic import SecretStr

from postroom.control.parts import Parts
from postroom.errors import Forbidden, PinPaused, PinRequired, PinWrong
from postroom.protocol.principal import OPERATOR_KEY, Principal, Scope
from postroom.settings import DEFAULT_ORG

PIN = (PinRequired, PinWrong, PinPaused)
"""The errors of a route that asks for the caller's PIN."""


def pin_of(
    parts: Parts, me: Principal, given: SecretStr, *, needed: bool = False
) -> Callable[[], Awaitable[None]]:
    """What checks the PIN that a caller has given, when it comes to that.

    The operator's key opens every organisation, so the operator's PIN of the default one counts in all.

    Args:
        needed: who has set none is refused.
    """

    async def check() -> None:
        pins, uid = parts.pins, me.uid
        if me.key_id == OPERATOR_KEY:
            first, owner = parts.installation.pins.get(DEFAULT_ORG, (pins, uid))
            if first.status(owner)["set"]:
                pins, uid = first, owner
        if needed and not pins.status(uid)["set"]:
            raise Forbidden(
                "this needs a PIN of yours, and you have none", remedy="postroom pin set"
            )
        await pins.check(uid, given.get_secret_value())

    return check


async def check_key(
    parts: Parts, me: Principal, scopes: Collection[Scope], given: SecretStr
) -> None:
    """Check the PIN before `me` gets a key with these scopes.

    It may be for somebody without a PIN, and answer approvals and spawn without one. Raises `PIN`.
    """
    if Scope.OPERATE in scopes or Scope.ADMIN in scopes:
        await pin_of(parts, me, given)()
