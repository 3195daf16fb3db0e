"""What a revocation makes of an organisation's keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from postroom.identity.keyring import OrgKeys
from postroom.identity.minting import MAX_LIFETIME, check_user

REVOCATION_MARGIN = 60
"""Seconds that a revocation is remembered after the credential has expired: clocks of servers differ."""


def revoked(former: OrgKeys, keys: Mapping[str, float], *, now: float) -> OrgKeys:
    """With everything void that was issued to these user keys until now (see `Trust.revoke`)."""
    for public in keys:
        check_user(public)
    until = {
        key: former.revoked_until.get(key, at + int(MAX_LIFETIME))
        for key, at in former.revocations.items()
    }
    until = {key: end for key, end in until.items() if end >= now}
    until |= {key: int(end) + REVOCATION_MARGIN for key, end in keys.items()}
    at = {key: former.revocations.get(key, int(now)) for key in until}
    at |= dict.fromkeys(keys, int(now))
    return replace(former, revocations=at, revoked_until=until)
