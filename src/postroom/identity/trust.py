"""The chain of trust: operator, accounts of an organisation, and credentials.

Each organisation has two accounts (docs/architecture.md, Identity and trust): *core* with JetStream and the
control plane, *edge* with the agents. A server does not check the reply subject of a publish, so with JetStream
in the agents' own account a forged reply could drop a PubAck into a stranger's inbox.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from postroom.errors import Conflict, NotFound
from postroom.identity import jwt, keyring, minting, rotating
from postroom.identity.cardkey import CardKey
from postroom.identity.jwt import Credential
from postroom.identity.keyring import Keyring, MessageKeys, OrgKeys
from postroom.identity.nkeys import KeyPair, Kind
from postroom.identity.rotating import Role
from postroom.protocol.answers import TrustKey
from postroom.protocol.ids import CONTROL_PLANE, check_name
from postroom.settings import DEFAULT_ORG


class _Kept:
    """The present keys, shared by all organisations: otherwise one could overwrite the other's change."""

    def __init__(self, keys: Keyring) -> None:
        self.keys = keys


class Trust:
    """The keys of a post room, seen from one organisation.

    Args:
        folder: where the keys are kept.
        org: the organisation that accounts and credentials are for.
        clock: for credentials without a stated time.
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
        """
        check_name(org, "organisation")
        keys = keyring.load(folder) or Keyring.generate()
        complete = keys
        if org not in keys.orgs:
            complete = replace(complete, orgs={**keys.orgs, org: OrgKeys.generate()})
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
        """The same keys, seen from the organisation `org`."""
        seen = Trust(self._folder, self._keys, org, self._clock)
        seen._kept = self._kept
        return seen

    def add_org(self, org: str) -> Trust:
        """Make the keys of a new organisation: when this returns they are on disk; on an error they are not.

        Raises:
            InvalidName: `org` is malformed.
            Conflict: the name is taken.
        """
        check_name(org, "organisation")
        if org in self._keys.orgs:
            raise Conflict(f"there is an organisation {org!r} already")
        self._save(replace(self._keys, orgs={**self._keys.orgs, org: OrgKeys.generate()}))
        return self.of(org)

    def remove_org(self, org: str) -> None:
        """Forget the keys of an organisation for ever: no credential of it can be made any more."""
        if org not in self._keys.orgs:
            raise NotFound(f"there is no organisation {org!r}")
        left = dict(self._keys.orgs)
        lost = left.pop(org)
        gone = (*self._keys.gone, lost.core.public, lost.edge.public)
        self._save(replace(self._keys, orgs=left, gone=gone))

    @property
    def gone(self) -> tuple[str, ...]:
        """Public keys of accounts of removed organisations, until `forgotten`."""
        return self._keys.gone

    def forgotten(self, accounts: Sequence[str]) -> None:
        """Note that the servers have forgotten `accounts`; if this raises, they are deleted again later."""
        left = tuple(account for account in self._keys.gone if account not in accounts)
        self._save(replace(self._keys, gone=left))

    def deletion(self, accounts: Sequence[str]) -> str:
        """A JWT that makes the server forget `accounts`."""
        operator = self._keys.operator
        body = {"accounts": list(accounts)}
        return jwt.encode(operator, operator.public, "deletion", body, now=self._clock())

    # For the servers.

    @property
    def operator_jwt(self) -> str:
        """JWT of the operator, for the server's configuration."""
        operator = self._keys.operator
        body = jwt.operator_body(self.system_account, self.signers)
        return jwt.encode(operator, operator.public, "postroom", body, now=self._clock())

    @property
    def signers(self) -> tuple[str, ...]:
        """Public keys beside the operator's own that may sign accounts; its JWT names them."""
        return rotating.trusted_signers(self._keys)

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
        issued = [(self._keys.system, "SYS", jwt.account_body(), now)]
        for name, keys in self._keys.orgs.items():
            issued.append((keys.core, f"{name}-core", minting.core_body(), now))
            dated = max(now, keys.dated_from)
            issued.append((keys.edge, f"{name}-edge", minting.edge_body(keys), dated))
        signer = self._keys.signer or self._keys.operator
        return {
            account.public: jwt.encode(signer, account.public, name, body, now=at)
            for account, name, body, at in issued
        }

    # For peers.

    @property
    def card_key(self) -> CardKey:
        """The key that signs Agent Cards."""
        return self._keys.cards

    @property
    def proxy_key(self) -> KeyPair:
        """The gateway's key; the server's configuration lists its public half (`ServerConfig.proxies`)."""
        return self._keys.proxy

    @property
    def proxies(self) -> tuple[str, ...]:
        """Public keys of gateways that the servers must trust, the present one first."""
        return rotating.trusted_proxies(self._keys)

    def sign_as_proxy(self, nonce: bytes) -> bytes:
        """The gateway's signature, by its present key."""
        return self.proxy_key.sign(nonce)

    def signs(self, issuer: str) -> bool:
        """Whether `issuer`, a public key, signs credentials of this organisation."""
        org = self._org
        present = (org.core, org.edge, org.agents, org.workers, org.control)
        return issuer in org.retiring or issuer in {key.public for key in present}

    # Credentials.

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
            projects: it may post to these.
            lifetime: seconds of validity, at most `minting.MAX_LIFETIME`.
            proxied: it connects through the gateway only.

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
        """A new JWT for the key `public` of agent `uid`; otherwise as `mint_agent`.

        The JWT before it stays valid until it expires: both are in use while one connection takes over from the other.
        A revocation voids both.

        Raises:
            Forbidden: the key was revoked.
        """
        return minting.agent_jwt(
            self._org, public, uid, projects, lifetime=lifetime, now=now, proxied=proxied
        )

    def revoke(self, keys: Mapping[str, float], *, now: float) -> None:
        """Void every credential that was issued to these user keys until now; effective with the next push.

        On disk before this returns, so that a restart does not lift it. Older revocations that match no living
        credential are forgotten.

        Args:
            keys: public key of a user -> epoch second at which its last credential expires.
        """
        org = minting.revoked(self._org, keys, now=now)
        self._save_dated(replace(self._keys, orgs={**self._keys.orgs, self.org: org}))

    # Rotation (see `rotating`).

    def prepare(self, role: Role) -> str:
        """Make the operator's or the gateway's next key: servers must trust it before its first use.

        Returns:
            Its public half; an unused earlier one is returned again.
        """
        if not rotating.prepared_key(self._keys, role):
            self._save(rotating.prepared(self._keys, role))
        return rotating.prepared_key(self._keys, role)

    def rotate(self, *roles: Role) -> None:
        """Use new keys for `roles`; the former ones still count. Effective with the next push or reconfiguration."""
        self._save_dated(rotating.rotated(self._keys, self.org, *roles))

    def former_keys(self, *roles: Role) -> tuple[str, ...]:
        """Public keys of `roles` that still count beside the present one."""
        return rotating.former(self._keys, self.org, *roles)

    def drop_former(self, *roles: Role) -> None:
        """Drop the former keys of `roles`, effective with the next push or reconfiguration."""
        self._save_dated(rotating.without_former(self._keys, self.org, *roles))

    def settle(self) -> None:
        """Drop every former key: for a start, before any credential of one is in use."""
        for org in self.orgs:
            if self.of(org).former_keys(*Role):
                self.of(org).drop_former(*Role)

    def key_list(self) -> list[TrustKey]:
        """Public keys (see `rotating.listed`)."""
        return rotating.listed(self._keys, self.org)

    # Messages in the database.

    def message_keys(self) -> MessageKeys:
        """The secrets that sign them; made for an organisation from before there were any, whose messages are unsigned.

        Raises:
            StateUnwritable: they cannot be kept.
        """
        found = self._org.messages
        return found or self._keep_messages(MessageKeys.generate(unsigned=True))

    def rotate_message_keys(self) -> MessageKeys:
        """Sign with a new secret; the former ones check until `messages_signed`."""
        before = self.message_keys()
        former = (before.present, *before.former)
        return self._keep_messages(replace(MessageKeys.generate(), former=former))

    def messages_signed(self) -> MessageKeys:
        """Note that all messages are signed with the present secret; the former ones are dropped."""
        return self._keep_messages(MessageKeys(self.message_keys().present))

    def _keep_messages(self, keys: MessageKeys) -> MessageKeys:
        own = replace(self._org, messages=keys)
        self._save(replace(self._keys, orgs={**self._keys.orgs, self.org: own}))
        return keys

    # Inner parts.

    @property
    def _keys(self) -> Keyring:
        return self._kept.keys

    def _save(self, keys: Keyring) -> None:
        keyring.save(self._folder, keys)
        self._kept.keys = keys

    def _save_dated(self, keys: Keyring) -> None:
        """Save keys that change the agents' account: its date must be newer than on any server."""
        own = keys.orgs[self.org]
        dated = replace(own, dated_from=max(int(self._clock()), own.dated_from) + 1)
        self._save(replace(keys, orgs={**keys.orgs, self.org: dated}))

    @property
    def _org(self) -> OrgKeys:
        return self._keys.orgs[self.org]

    def _unscoped(self, account: KeyPair) -> Credential:
        user = KeyPair.generate(Kind.USER)
        now = self._clock()
        token = jwt.encode(account, user.public, CONTROL_PLANE, jwt.user_body(), now=now)
        return Credential(token, user.seed)
