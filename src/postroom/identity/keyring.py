"""The file of the private keys: operator, system account, card key, each organisation's accounts and signing keys.

One JSON document of seeds, 0600 in a folder 0700. It is written beside itself and moved into place, so that a crash
leaves the old one or the new one. The caller holds the lock of the state folder.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from postroom.errors import InvalidInput, StateUnwritable
from postroom.identity import privatefile
from postroom.identity.cardkey import CardKey
from postroom.identity.nkeys import KeyPair, Kind

FILE = "trust.json"
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class MessageKeys:
    """The secrets that sign the messages in the database of one organisation, as base64url.

    Attributes:
        present: signs.
        former: what they have signed is signed again, and counts until then.
        unsigned: there are messages from before, which are to be signed.
    """

    present: str = field(repr=False)
    former: tuple[str, ...] = field(default=(), repr=False)
    unsigned: bool = False

    @classmethod
    def generate(cls, *, unsigned: bool = False) -> MessageKeys:
        """A new secret."""
        return cls(secrets.token_urlsafe(32), unsigned=unsigned)

    @property
    def secrets(self) -> list[bytes]:
        """All of them, the present one first."""
        return [secret.encode() for secret in (self.present, *self.former)]


@dataclass(frozen=True, slots=True)
class OrgKeys:
    """Keys of one organisation, of kind account but for those of its messages.

    Attributes:
        core: account of JetStream and the control plane.
        agents: signing key of edge, scoped to an agent's rights.
        control: signing key of edge, scoped to the control plane's rights there.
        workers: as `agents`, but its users connect only through a trusted proxy: the gateway.
        revocations: user public key -> epoch second of its revocation.
        revoked_until: user public key -> epoch second from which its revocation may be forgotten.
        retiring: public signing key that is about to be dropped -> its role (`agents`, `control`, `workers`).
        dated_from: epoch second that the JWT of edge is at least dated; each revocation moves it on. Of two JWTs with
            one
            date a starting server takes its configured one, which may be the older one.
        messages: None for an organisation from before there were any.
    """

    core: KeyPair
    edge: KeyPair
    agents: KeyPair
    control: KeyPair
    workers: KeyPair
    revocations: Mapping[str, int] = field(default_factory=dict)
    dated_from: int = 0
    revoked_until: Mapping[str, int] = field(default_factory=dict)
    retiring: Mapping[str, str] = field(default_factory=dict)
    messages: MessageKeys | None = None

    @classmethod
    def generate(cls) -> OrgKeys:
        """Keys of a new organisation."""
        core, edge, agents, control, workers = (KeyPair.generate(Kind.ACCOUNT) for _ in range(5))
        return cls(core, edge, agents, control, workers, messages=MessageKeys.generate())


@dataclass(frozen=True, slots=True)
class Keyring:
    """All private keys of a post room.

    Attributes:
        cards: signs Agent Cards.
        proxy: the gateway's; it signs for the connections that it lets through (NATS, ADR-55).
        gone: public keys of accounts of removed organisations that a server may still have.
        signer: signing key of the operator; None while the operator's own key signs the accounts.
        next_signer, next_proxy: keys that servers must trust before their first use.
        former_signers, former_proxies: public keys that are about to be dropped, but still count.
    """

    operator: KeyPair
    system: KeyPair
    cards: CardKey
    proxy: KeyPair
    orgs: Mapping[str, OrgKeys] = field(default_factory=dict)
    gone: tuple[str, ...] = ()
    signer: KeyPair | None = None
    next_signer: KeyPair | None = None
    next_proxy: KeyPair | None = None
    former_signers: tuple[str, ...] = ()
    former_proxies: tuple[str, ...] = ()

    @classmethod
    def generate(cls) -> Keyring:
        """Keys of a new post room without an organisation."""
        operator, system = KeyPair.generate(Kind.OPERATOR), KeyPair.generate(Kind.ACCOUNT)
        return cls(operator, system, CardKey.generate(), KeyPair.generate(Kind.USER))


def _key(seed: object, kind: Kind) -> KeyPair:
    key = KeyPair.from_seed(str(seed))
    if key.kind is not kind:
        raise InvalidInput(f"a key is of kind {key.kind.name}, not {kind.name}")
    return key


def _org(document: Mapping[str, Any]) -> OrgKeys:
    return OrgKeys(
        core=_key(document["core"], Kind.ACCOUNT),
        edge=_key(document["edge"], Kind.ACCOUNT),
        agents=_key(document["agents"], Kind.ACCOUNT),
        control=_key(document["control"], Kind.ACCOUNT),
        workers=_key(document["workers"], Kind.ACCOUNT),
        revocations={str(key): int(at) for key, at in document["revocations"].items()},
        dated_from=int(document["dated_from"]),
        revoked_until={str(key): int(at) for key, at in document.get("revoked_until", {}).items()},
        retiring={str(key): str(role) for key, role in document.get("retiring", {}).items()},
        messages=_messages(document["messages"]) if "messages" in document else None,
    )


def _messages(document: Mapping[str, Any]) -> MessageKeys:
    former = tuple(map(str, document["former"]))
    return MessageKeys(str(document["present"]), former, document["unsigned"] is True)


def _parse(text: str) -> Keyring:
    document = json.loads(text)
    if document["format"] != _FORMAT:
        raise InvalidInput(f"this version does not know the format {document['format']!r}")
    return Keyring(
        _key(document["operator"], Kind.OPERATOR),
        _key(document["system"], Kind.ACCOUNT),
        CardKey.from_secret(str(document["cards"])),
        _key(document["proxy"], Kind.USER),
        {name: _org(org) for name, org in document["orgs"].items()},
        signer=_key(document["signer"], Kind.OPERATOR) if "signer" in document else None,
        gone=tuple(map(str, document.get("gone", ()))),
        next_signer=_key(document["next_signer"], Kind.OPERATOR)
        if "next_signer" in document
        else None,
        next_proxy=_key(document["next_proxy"], Kind.USER) if "next_proxy" in document else None,
        former_signers=tuple(map(str, document.get("former_signers", ()))),
        former_proxies=tuple(map(str, document.get("former_proxies", ()))),
    )


def _render(keyring: Keyring) -> str:
    def org(keys: OrgKeys) -> dict[str, Any]:
        messages = {} if keys.messages is None else {"messages": asdict(keys.messages)}
        return {
            "core": keys.core.seed,
            "edge": keys.edge.seed,
            "agents": keys.agents.seed,
            "control": keys.control.seed,
            "workers": keys.workers.seed,
            "revocations": dict(keys.revocations),
            "dated_from": keys.dated_from,
            "revoked_until": dict(keys.revoked_until),
            "retiring": dict(keys.retiring),
            **messages,
        }

    document: dict[str, Any] = {
        "format": _FORMAT,
        "operator": keyring.operator.seed,
        "system": keyring.system.seed,
        "cards": keyring.cards.secret,
        "proxy": keyring.proxy.seed,
        "orgs": {name: org(keys) for name, keys in keyring.orgs.items()},
    }
    for name in ("signer", "next_signer", "next_proxy"):
        key = getattr(keyring, name)
        if key is not None:
            document[name] = key.seed
    for name in ("gone", "former_signers", "former_proxies"):
        if getattr(keyring, name):
            document[name] = list(getattr(keyring, name))
    return json.dumps(document, indent=1)


def load(folder: Path) -> Keyring | None:
    """The keys in `folder`, None before the first; permissions that are too open are narrowed.

    Raises:
        InvalidInput: the file is damaged, or of a later version.
    """
    path = folder / FILE
    try:
        folder.chmod(0o700)
        path.chmod(0o600)
        text = path.read_text("utf-8")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StateUnwritable(f"cannot read the keys in {path}: {error.strerror}") from error
    try:
        return _parse(text)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        # Not chained: a decoding error carries the text, which is all seeds.
        raise InvalidInput(
            f"{path} is damaged ({type(error).__name__})",
            remedy="restore it from a backup; without it every credential is void",
        ) from None
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error.message}", remedy=error.remedy) from error


def save(folder: Path, keyring: Keyring) -> None:
    """Write the keys to disk; after a crash the old ones or the new ones are there, never half."""
    try:
        privatefile.prepare(folder)
        privatefile.replace(folder / FILE, _render(keyring).encode())
    except OSError as error:
        raise StateUnwritable(
            f"cannot write the keys to {folder}: {error.strerror}",
            remedy="free space, or choose another state folder",
        ) from error
