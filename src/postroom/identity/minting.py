"""The JWT of an agent's credential, and its bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from postroom.errors import Forbidden, InvalidInput
from postroom.identity import jwt, nkeys
from postroom.identity.keyring import OrgKeys
from postroom.identity.nkeys import Kind
from postroom.protocol.ids import check_name, check_uid
from postroom.protocol.limits import MAX_PROJECTS

MAX_LIFETIME = 30 * 86400.0
"""Seconds: longest validity of an agent's credential, and so the life of a revocation."""


def check_user(public: str) -> None:
    """Raise `InvalidInput` unless `public` is the public key of a user."""
    kind, _ = nkeys.decode_public(public)
    if kind is not Kind.USER:
        raise InvalidInput("only a user's key can have a credential")


def agent_jwt(
    org: OrgKeys,
    public: str,
    uid: str,
    projects: Sequence[str],
    *,
    lifetime: float,
    now: float,
    proxied: bool,
) -> str:
    """A JWT of agent `uid` for its key `public` (see `Trust.renew`)."""
    check_user(public)
    if public in org.revocations:
        raise Forbidden("the key was revoked")
    if not 0 < lifetime <= MAX_LIFETIME:
        raise InvalidInput(f"a lifetime of {lifetime} s is not within 0 to {MAX_LIFETIME:.0f}")
    if len(projects) > MAX_PROJECTS:
        raise InvalidInput(f"{len(projects)} projects are too many; at most {MAX_PROJECTS}")
    check_uid(uid)
    tags = sorted({f"project:{check_name(project, 'project')}" for project in projects})
    body = jwt.scoped_user_body(org.edge.public, tags)
    signer = org.workers if proxied else org.agents
    return jwt.encode(signer, public, uid, body, now=now, expires=now + lifetime)


REVOCATION_MARGIN = 60
"""Seconds that a revocation outlives the credential: clocks of servers differ."""


def revoked(former: OrgKeys, keys: Mapping[str, float], *, now: float) -> OrgKeys:
    """`former`, with every credential void that was issued to these user keys until now (see `Trust.revoke`)."""
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
