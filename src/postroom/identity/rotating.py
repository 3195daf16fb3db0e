"""The keys that can rotate, and the effect of a rotation on the file of keys.

A rotation makes and uses a new key; the former one counts until it is dropped. Where servers must know a key before its
first use (operator, gateway), it can be prepared: it counts, and is not used yet.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum

from postroom.identity.keyring import Keyring
from postroom.identity.nkeys import KeyPair, Kind
from postroom.protocol.answers import TrustKey


class Role(Enum):
    """The use of a key that can rotate.

    The identity keys of operator and accounts cannot be rotated: the streams belong to the account's.
    """

    OPERATOR = "operator"
    AGENTS = "agents"
    WORKERS = "workers"
    CONTROL = "control"
    PROXY = "proxy"


def trusted_proxies(keys: Keyring) -> tuple[str, ...]:
    """Public keys of gateways that the servers must trust, the present one first."""
    coming = (keys.next_proxy.public,) if keys.next_proxy else ()
    return (keys.proxy.public, *coming, *keys.former_proxies)


def trusted_signers(keys: Keyring) -> tuple[str, ...]:
    """Public keys beside the operator's own that may sign accounts."""
    signers = (key.public for key in (keys.signer, keys.next_signer) if key)
    return (*signers, *keys.former_signers)


def prepared(keys: Keyring, role: Role) -> Keyring:
    """`keys` with a key of the operator or the gateway that counts, and is used from the next rotation on."""
    if role is Role.PROXY:
        return replace(keys, next_proxy=keys.next_proxy or KeyPair.generate(Kind.USER))
    return replace(keys, next_signer=keys.next_signer or KeyPair.generate(Kind.OPERATOR))


def prepared_key(keys: Keyring, role: Role) -> str:
    """Public half of the prepared key, "" without one."""
    key = keys.next_proxy if role is Role.PROXY else keys.next_signer
    return key.public if key else ""


def rotated(keys: Keyring, org: str, *roles: Role) -> Keyring:
    """`keys` with new keys for `roles`, prepared ones first; the former ones still count."""
    own = keys.orgs[org]
    retiring = dict(own.retiring)
    for role in roles:
        match role:
            case Role.OPERATOR:
                keys = prepared(keys, role)
                former = (keys.signer.public,) if keys.signer else ()
                keys = replace(
                    keys,
                    signer=keys.next_signer,
                    next_signer=None,
                    former_signers=keys.former_signers + former,
                )
            case Role.PROXY:
                keys = prepared(keys, role)
                keys = replace(
                    keys,
                    proxy=keys.next_proxy or keys.proxy,
                    next_proxy=None,
                    former_proxies=(*keys.former_proxies, keys.proxy.public),
                )
            case Role.AGENTS:
                retiring[own.agents.public] = role.value
                own = replace(own, agents=KeyPair.generate(Kind.ACCOUNT))
            case Role.WORKERS:
                retiring[own.workers.public] = role.value
                own = replace(own, workers=KeyPair.generate(Kind.ACCOUNT))
            case Role.CONTROL:
                retiring[own.control.public] = role.value
                own = replace(own, control=KeyPair.generate(Kind.ACCOUNT))
    return replace(keys, orgs={**keys.orgs, org: replace(own, retiring=retiring)})


def former(keys: Keyring, org: str, *roles: Role) -> tuple[str, ...]:
    """Public keys of `roles` that still count beside the present one."""
    own = [key for key, role in keys.orgs[org].retiring.items() if Role(role) in roles]
    signers = keys.former_signers if Role.OPERATOR in roles else ()
    proxies = keys.former_proxies if Role.PROXY in roles else ()
    return (*own, *signers, *proxies)


def without_former(keys: Keyring, org: str, *roles: Role) -> Keyring:
    """`keys` without the former keys of `roles`."""
    if Role.OPERATOR in roles:
        keys = replace(keys, former_signers=())
    if Role.PROXY in roles:
        keys = replace(keys, former_proxies=())
    own = keys.orgs[org]
    kept = {key: role for key, role in own.retiring.items() if Role(role) not in roles}
    return replace(keys, orgs={**keys.orgs, org: replace(own, retiring=kept)})


def listed(keys: Keyring, org: str) -> list[TrustKey]:
    """Public keys: `{"role", "key", "state": "identity" | "active" | "next" | "former"}`."""
    own = keys.orgs[org]
    identities = {
        "operator": keys.operator,
        "system account": keys.system,
        "core account": own.core,
        "edge account": own.edge,
    }
    present: dict[Role, str] = {
        Role.OPERATOR: (keys.signer or keys.operator).public,
        Role.AGENTS: own.agents.public,
        Role.WORKERS: own.workers.public,
        Role.CONTROL: own.control.public,
        Role.PROXY: keys.proxy.public,
    }
    rows = [(name, key.public, "identity") for name, key in identities.items()]
    for role, public in present.items():
        rows.append((role.value, public, "active"))
        if role in (Role.OPERATOR, Role.PROXY) and prepared_key(keys, role):
            rows.append((role.value, prepared_key(keys, role), "next"))
        rows += [(role.value, key, "former") for key in former(keys, org, role)]
    return [{"role": role, "key": key, "state": state} for role, key, state in rows]
