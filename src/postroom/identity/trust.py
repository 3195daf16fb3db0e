"""The chain of trust: operator, accounts of an organisation, and who gets which credential.

Each organisation has two accounts (docs/architecture.md, Identity and trust): *core* with JetStream and the
control plane, *edge* with the agents. A server does not check the reply subject of a publish, so with JetStream
in the agents' own account a forged reply could drop a PubAck into a stranger's inbox.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from postroom.errors import Conflict, InvalidInput, NotFound
from postroom.identity import jwt, keyring, nkeys
from postroom.identity.cardkey import CardKey
from postroom.identity.credential import Credential
from postroom.identity.keyring import Keyring, OrgKeys
from postroom.identity.nkeys import KeyPair, Kind
from postroom.protocol.ids import CONTROL_PLANE, check_name, check_uid
from postroom.protocol.permissions import (
    agent_permissions,
    control_plane_edge_permissions,
    core_exports,
)
from postroom.settings import DEFAULT_ORG

MAX_LIFETIME = 30 * 86400.0
"""Seconds: longest validity of an agent's credential, and so how long a revocation must be remembered."""

MAX_PROJECTS = 256
"""Projects in one credential: with the longest names its CONNECT line still fits the server's 32 KiB."""

AGENT_SUBSCRIPTIONS = 1000
"""Subscriptions that one agent's connection may have at a time."""

CONTROL_SUBSCRIPTIONS = 100_000


class _Kept:
    """The keys as they are now, which all organisations share: else one would save away what another has changed."""

    def __init__(self, keys: Keyring) -> None:
        self.keys = keys


class Trust:
    """The keys of a post room, seen from one organisation.

    Args:
        folder: where the keys are kept.
        keys: all of them.
        org: the organisation that accounts and credentials are for.
        clock: seconds since the epoch, for what is issued without a stated time.
    """

    def __init__(
        self, folder: Path, keys: Keyring, org: str, clock: Callable[[], float] = time.time
    ) -> None:
        if org not in keys.orgs:
            raise NotFound(f"there is no organisation {org!r}")
        self.org = org
        self._folder = folder
        self._kept = _Kept(keys)
        self._clock = clock

    def __repr__(self) -> str:
        return f"Trust(org={self.org!r}, operator={self._keys.operator.public!r})"

    @classmethod
    def load_or_create(
        cls, folder: Path, org: str = DEFAULT_ORG, *, clock: Callable[[], float] = time.time
    ) -> Trust:
        """The keys in `folder`, made where they are missing; permissions that are too open are narrowed.

        Raises:
            InvalidName: `org` is malformed.
            InvalidInput: the file of keys is damaged, or of a later version.
            StateUnwritable: the folder cannot be read or written.
        """
        check_name(org, "organisation")
        keys = keyring.load(folder) or Keyring.generate()
        complete = keys
        if org not in keys.orgs:
            complete = replace(complete, orgs={**keys.orgs, org: OrgKeys.generate()})
        if keys.cards is None:
            complete = replace(complete, cards=CardKey.generate())
        if keys.proxy is None:
            complete = replace(complete, proxy=KeyPair.generate(Kind.USER))
        if complete is not keys:
            keyring.save(folder, complete)
            keys = complete
        return cls(folder, keys, org, clock)

    # The organisations.

    @property
    def orgs(self) -> tuple[str, ...]:
        """Names of all organisations, in the order they were made."""
        return tuple(self._keys.orgs)

    def of(self, org: str) -> Trust:
        """The same keys, seen from the organisation `org`.

        Raises:
            NotFound: there is none of that name.
        """
        seen = Trust(self._folder, self._keys, org, self._clock)
        seen._kept = self._kept
        return seen

    def add_org(self, org: str) -> Trust:
        """Make the keys of a new organisation; on disk when this returns, and whole there or not at all.

        Raises:
            InvalidName: `org` is malformed.
            Conflict: there is one of that name.
            StateUnwritable: they could not be kept.
        """
        check_name(org, "organisation")
        if org in self._keys.orgs:
            raise Conflict(f"there is an organisation {org!r} already")
        self._save(replace(self._keys, orgs={**self._keys.orgs, org: OrgKeys.generate()}))
        return self.of(org)

    def remove_org(self, org: str) -> None:
        """Forget the keys of an organisation, for ever: nobody can have a credential of it any more.

        Raises:
            NotFound: there is none of that name.
            StateUnwritable: the disk still has them.
        """
        if org not in self._keys.orgs:
            raise NotFound(f"there is no organisation {org!r}")
        left = dict(self._keys.orgs)
        lost = left.pop(org)
        gone = (*self._keys.gone, lost.core.public, lost.edge.public)
        self._save(replace(self._keys, orgs=left, gone=gone))

    @property
    def gone(self) -> tuple[str, ...]:
        """Public keys of accounts of removed organisations, until `forgotten` says that the server has none of them."""
        return self._keys.gone

    def forgotten(self, accounts: Sequence[str]) -> None:
        """The server has forgotten `accounts`.

        Raises:
            StateUnwritable: it could not be kept; they are deleted again another time.
        """
        left = tuple(account for account in self._keys.gone if account not in accounts)
        self._save(replace(self._keys, gone=left))

    def deletion(self, accounts: Sequence[str]) -> str:
        """A JWT by which the server forgets `accounts`."""
        operator = self._keys.operator
        body = {"accounts": list(accounts)}
        return jwt.encode(operator, operator.public, "deletion", body, now=self._clock())

    # What the server is told.

    @property
    def operator_jwt(self) -> str:
        """JWT of the operator, for the server's configuration."""
        operator = self._keys.operator
        body = jwt.operator_body(self.system_account)
        return jwt.encode(operator, operator.public, "postroom", body, now=self._clock())

    @property
    def system_account(self) -> str:
        """Public key of the system account."""
        return self._keys.system.public

    @property
    def core_account(self) -> str:
        """Public key of the account with JetStream."""
        return self._org.core.public

    @property
    def edge_account(self) -> str:
        """Public key of the agents' account."""
        return self._org.edge.public

    def account_jwts(self) -> dict[str, str]:
        """JWTs of the system account and of every organisation's accounts, by public key."""
        now = self._clock()
        accounts = [(self._keys.system, "SYS", jwt.account_body(), now)]
        for name, keys in self._keys.orgs.items():
            accounts.append((keys.core, f"{name}-core", _core_body(), now))
            dated = max(now, keys.dated_from)
            accounts.append((keys.edge, f"{name}-edge", _edge_body(keys), dated))
        operator = self._keys.operator
        return {
            account.public: jwt.encode(operator, account.public, name, body, now=at)
            for account, name, body, at in accounts
        }

    # What peers are told.

    @property
    def card_key(self) -> CardKey:
        """The key that signs Agent Cards.

        Raises:
            NotFound: these keys have none; `load_or_create` makes it.
        """
        if self._keys.cards is None:
            raise NotFound("there is no key for Agent Cards")
        return self._keys.cards

    @property
    def proxy_key(self) -> KeyPair:
        """The gateway's key; the server's configuration lists its public half (`ServerConfig.proxies`).

        Raises:
            NotFound: these keys have none; `load_or_create` makes it.
        """
        if self._keys.proxy is None:
            raise NotFound("there is no key for the gateway")
        return self._keys.proxy

    def signs(self, issuer: str) -> bool:
        """Whether `issuer`, a public key, signs credentials of this organisation's accounts."""
        org = self._org
        return issuer in {
            key.public for key in (org.core, org.edge, org.agents, org.workers, org.control)
        }

    # Who may connect.

    def core_credential(self) -> Credential:
        """A user of core with every right there; for the control plane alone."""
        return self._unscoped(self._org.core)

    def system_credential(self) -> Credential:
        """A user of the system account: pushes accounts, asks the server about itself."""
        return self._unscoped(self._keys.system)

    def edge_credential(self) -> Credential:
        """The control plane's user among the agents, under its reserved uid."""
        user = KeyPair.generate(Kind.USER)
        body = jwt.scoped_user_body(self._org.edge.public)
        now = self._clock()
        token = jwt.encode(self._org.control, user.public, CONTROL_PLANE, body, now=now)
        return Credential(token, user.seed)

    def mint_agent(
        self,
        uid: str,
        projects: Sequence[str],
        *,
        lifetime: float,
        now: float,
        proxied: bool = False,
    ) -> Credential:
        """A credential of agent `uid` under a new key.

        Args:
            uid: 32 hex digits.
            projects: it may post to these.
            lifetime: seconds of validity, at most `MAX_LIFETIME`.
            now: seconds since the epoch.
            proxied: it is let in through the gateway only.

        Raises:
            InvalidName: `uid` or a project is malformed; either could open foreign subjects.
            InvalidInput: the lifetime is out of bounds, or there are too many projects.
        """
        user = KeyPair.generate(Kind.USER)
        token = self.renew(user.public, uid, projects, lifetime=lifetime, now=now, proxied=proxied)
        return Credential(token, user.seed)

    def renew(
        self,
        public: str,
        uid: str,
        projects: Sequence[str],
        *,
        lifetime: float,
        now: float,
        proxied: bool = False,
    ) -> str:
        """A new JWT for the key `public` that agent `uid` holds already; otherwise as `mint_agent`."""
        kind, _ = nkeys.decode_public(public)
        if kind is not Kind.USER:
            raise InvalidInput("a credential is minted for a user's key only")
        if not 0 < lifetime <= MAX_LIFETIME:
            raise InvalidInput(f"a lifetime of {lifetime} s is not within 0 to {MAX_LIFETIME:.0f}")
        if len(projects) > MAX_PROJECTS:
            raise InvalidInput(f"{len(projects)} projects are more than {MAX_PROJECTS}")
        check_uid(uid)
        tags = sorted({f"project:{check_name(project, 'project')}" for project in projects})
        body = jwt.scoped_user_body(self._org.edge.public, tags)
        signer = self._org.workers if proxied else self._org.agents
        return jwt.encode(signer, public, uid, body, now=now, expires=now + lifetime)

    def revoke(self, public: str, *, now: float) -> None:
        """Void what was issued to the user key `public` until now; it takes effect with the next push.

        Kept on disk before this returns, so that a restart does not lift it. Older ones that no living
        credential can match are forgotten.

        Raises:
            InvalidInput: `public` is not the public key of a user.
            StateUnwritable: it could not be kept.
        """
        kind, _ = nkeys.decode_public(public)
        if kind is not Kind.USER:
            raise InvalidInput("only a user's key can be revoked")
        known = self._org.revocations
        kept = {key: at for key, at in known.items() if at + MAX_LIFETIME >= now}
        org = replace(
            self._org,
            revocations=kept | {public: int(now)},
            dated_from=max(int(now), self._org.dated_from) + 1,
        )
        self._save(replace(self._keys, orgs={**self._keys.orgs, self.org: org}))

    # Inner parts.

    @property
    def _keys(self) -> Keyring:
        return self._kept.keys

    @_keys.setter
    def _keys(self, keys: Keyring) -> None:
        self._kept.keys = keys

    def _save(self, keys: Keyring) -> None:
        keyring.save(self._folder, keys)
        self._keys = keys

    @property
    def _org(self) -> OrgKeys:
        return self._keys.orgs[self.org]

    def _unscoped(self, account: KeyPair) -> Credential:
        user = KeyPair.generate(Kind.USER)
        now = self._clock()
        token = jwt.encode(account, user.public, CONTROL_PLANE, jwt.user_body(), now=now)
        return Credential(token, user.seed)


def _core_body() -> dict[str, object]:
    return jwt.account_body(jetstream=True, exports=jwt.service_exports(core_exports()))


def _edge_body(keys: OrgKeys) -> dict[str, object]:
    agents = jwt.scope(
        keys.agents.public, "agent", agent_permissions(), subscriptions=AGENT_SUBSCRIPTIONS
    )
    workers = jwt.scope(
        keys.workers.public,
        "worker",
        agent_permissions(),
        subscriptions=AGENT_SUBSCRIPTIONS,
        proxied=True,
    )
    control = jwt.scope(
        keys.control.public,
        "control-plane",
        control_plane_edge_permissions(),
        subscriptions=CONTROL_SUBSCRIPTIONS,
    )
    return jwt.account_body(
        imports=jwt.service_imports(core_exports(), keys.core.public),
        scopes=[agents, workers, control],
        revocations=keys.revocations,
    )
