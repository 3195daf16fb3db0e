"""The JWT of an agent's credential, and its bounds; and the claims of the JWTs of an organisation's two accounts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from postroom.errors import Forbidden, InvalidInput
from postroom.identity import jwt, nkeys
from postroom.identity.keyring import OrgKeys
from postroom.identity.nkeys import Kind
from postroom.protocol.ids import check_name, check_uid
from postroom.protocol.limits import MAX_PROJECTS
from postroom.protocol.permissions import (
    agent_permissions,
    control_plane_edge_permissions,
    core_exports,
)

MAX_LIFETIME = 30 * 86400.0
"""Seconds: longest validity of an agent's credential, and so the life of a revocation."""

AGENT_SUBSCRIPTIONS = 1000
"""Subscriptions that one agent's connection may have at a time."""

CONTROL_SUBSCRIPTIONS = 100_000


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


def core_body() -> dict[str, object]:
    """Claims of the account with JetStream and the control plane."""
    return jwt.account_body(jetstream=True, exports=jwt.service_exports(core_exports()))


def edge_body(keys: OrgKeys) -> dict[str, object]:
    """Claims of the agents' account."""
    scopes = [
        _scope("agents", keys.agents.public),
        _scope("workers", keys.workers.public),
        _scope("control", keys.control.public),
        *(_scope(role, public) for public, role in keys.retiring.items()),
    ]
    return jwt.account_body(
        imports=jwt.service_imports(core_exports(), keys.core.public),
        scopes=scopes,
        revocations=keys.revocations,
    )


def _scope(role: str, public: str) -> dict[str, object]:
    if role == "control":
        permissions = control_plane_edge_permissions()
        return jwt.scope(public, "control-plane", permissions, subscriptions=CONTROL_SUBSCRIPTIONS)
    return jwt.scope(
        public,
        role.removesuffix("s"),
        agent_permissions(),
        subscriptions=AGENT_SUBSCRIPTIONS,
        proxied=role == "workers",
    )
