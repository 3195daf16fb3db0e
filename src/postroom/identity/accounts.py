"""The claims of the JWTs of an organisation's two accounts."""

from __future__ import annotations

from postroom.identity import jwt
from postroom.identity.keyring import OrgKeys
from postroom.protocol.permissions import (
    agent_permissions,
    control_plane_edge_permissions,
    core_exports,
)

AGENT_SUBSCRIPTIONS = 1000
"""Subscriptions that one agent's connection may have at a time."""

CONTROL_SUBSCRIPTIONS = 100_000


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
