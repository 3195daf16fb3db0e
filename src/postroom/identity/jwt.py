"""JWTs of NATS, version 2: making, reading, the claims that Postroom uses, and a user's credential. Pure.

Header and claims are JSON, base64url without padding; the signature is Ed25519 by the issuer's NKey over
`header.claims` (NATS, ADR-3 and the jwt package).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from postroom.errors import InvalidInput, Unauthorized
from postroom.identity import nkeys
from postroom.identity.nkeys import KeyPair
from postroom.protocol.permissions import Export, Permissions
from postroom_a2a.nats import Credentials

UNLIMITED = -1

Claims = dict[str, Any]
"""`{"jti", "iat", "iss", "sub", "name", "exp"?, "nats": {...}}`."""

_HEADER = {"typ": "JWT", "alg": "ed25519-nkey"}


def _to_text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode("ascii").rstrip("=")


def _from_text(text: str) -> bytes:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidInput("not a JWT: a part is not base64url") from error


def _compact(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()


def encode(
    issuer: KeyPair,
    subject: str,
    name: str,
    body: Mapping[str, Any],
    *,
    now: float,
    expires: float | None = None,
) -> str:
    """A signed JWT.

    Args:
        subject: its public key.
        name: for people; in a user's JWT the value of `{{name()}}`.
        body: the `nats` claim.
        expires: end of its validity, seconds since the epoch; None means never.
    """
    claims: Claims = {
        "iat": int(now),
        "iss": issuer.public,
        "sub": subject,
        "name": name,
        "nats": {**body, "version": 2},
    }
    if expires is not None:
        claims["exp"] = int(expires)
    claims["jti"] = base64.b32encode(hashlib.sha256(_compact(claims)).digest()).decode().rstrip("=")
    signed = f"{_to_text(_compact(_HEADER))}.{_to_text(_compact(claims))}"
    return f"{signed}.{_to_text(issuer.sign(signed.encode()))}"


def _document(part: str) -> dict[str, Any]:
    try:
        value = json.loads(_from_text(part))
    except ValueError as error:
        raise InvalidInput("not a JWT: a part is not JSON") from error
    if not isinstance(value, dict):
        raise InvalidInput("not a JWT: a part is not a JSON object")
    return value


def decode(token: str) -> Claims:
    """The claims of `token`, after a check of the signature by the issuer that it names.

    The caller decides about the issuer and the expiry (see `verify`).

    Raises:
        InvalidInput: not a JWT of NATS, version 2.
        Unauthorized: the signature is not the issuer's.
    """
    parts = token.split(".")
    if len(parts) != 3:
        raise InvalidInput("not a JWT: it needs three parts")
    header, claims, signature = _document(parts[0]), _document(parts[1]), _from_text(parts[2])
    if header.get("alg") != _HEADER["alg"]:
        raise InvalidInput("not a JWT of NATS: it is not signed by an NKey")
    nats = claims.get("nats")
    if not isinstance(nats, dict) or nats.get("version") != 2:
        raise InvalidInput("not a JWT of NATS, version 2")
    if not nkeys.verify(str(claims.get("iss", "")), f"{parts[0]}.{parts[1]}".encode(), signature):
        raise Unauthorized("the JWT is not signed by its issuer")
    return claims


def verify(token: str, issuer: str, *, now: float) -> Claims:
    """The claims of `token`, if `issuer` (a public key) signed it and it is valid at `now`.

    Raises:
        Unauthorized: signed by another, or expired.
    """
    claims = decode(token)
    if claims["iss"] != issuer:
        raise Unauthorized("the JWT is signed by another issuer")
    expires = claims.get("exp", 0)
    if expires and expires <= now:
        raise Unauthorized("the JWT has expired")
    return claims


def same_claims(one: Claims, other: Claims) -> bool:
    """Whether two JWTs agree but for the time of issue."""
    ignored = ("iat", "jti")

    def stated(claims: Claims) -> Claims:
        return {key: value for key, value in claims.items() if key not in ignored}

    return stated(one) == stated(other)


def operator_body(system_account: str, signing_keys: Sequence[str] = ()) -> dict[str, Any]:
    """Claims of an operator with its system account and further signing keys."""
    body: dict[str, Any] = {"type": "operator", "system_account": system_account}
    return body | ({"signing_keys": list(signing_keys)} if signing_keys else {})


def _subjects(permissions: Permissions) -> dict[str, Any]:
    return {
        "pub": {"allow": list(permissions.publish)},
        "sub": {"allow": list(permissions.subscribe)},
    }


def scope(
    signing_key: str,
    role: str,
    permissions: Permissions,
    *,
    subscriptions: int,
    proxied: bool = False,
) -> dict[str, Any]:
    """A scoped signing key: its users have these rights, whatever their JWT says.

    Only plain connections are allowed: a leaf node would carry many senders over one credential.

    Args:
        signing_key: its public key (kind account).
        permissions: may contain `{{name()}}` and `{{tag(...)}}`.
        subscriptions: most that one connection may have at a time.
        proxied: a connection needs the signature of a trusted proxy (NATS, ADR-55).
    """
    template = _subjects(permissions) | {
        "subs": subscriptions,
        "data": UNLIMITED,
        "payload": UNLIMITED,
        "allowed_connection_types": ["STANDARD"],
    }
    if proxied:
        template["proxy_required"] = True
    return {"kind": "user_scope", "key": signing_key, "role": role, "template": template}


def service_exports(exports: Sequence[Export]) -> list[dict[str, Any]]:
    """The `exports` claim of the account that offers them."""
    return [
        {
            "name": export.subject,
            "subject": export.subject,
            "type": "service",
            "response_type": "Stream" if export.stream_response else "Singleton",
        }
        for export in exports
    ]


def service_imports(exports: Sequence[Export], account: str) -> list[dict[str, Any]]:
    """The `imports` claim of an account that uses the services of `account` under the same subjects."""
    return [
        {"name": export.subject, "subject": export.subject, "account": account, "type": "service"}
        | ({"share": True} if export.share else {})
        for export in exports
    ]


def account_body(
    *,
    jetstream: bool = False,
    exports: Sequence[Mapping[str, Any]] = (),
    imports: Sequence[Mapping[str, Any]] = (),
    scopes: Sequence[Mapping[str, Any]] = (),
    revocations: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """Claims of an account.

    Args:
        jetstream: without limits if True; otherwise a limit of 0 refuses it.
        exports: see `service_exports`.
        imports: see `service_imports`.
        scopes: its scoped signing keys (`scope`).
        revocations: user public key -> epoch second; credentials issued until then are void.
    """
    storage = UNLIMITED if jetstream else 0
    limits = dict.fromkeys(("subs", "data", "payload", "imports", "exports", "conn"), UNLIMITED)
    limits |= dict.fromkeys(("mem_storage", "disk_storage", "streams", "consumer"), storage)
    return {
        "type": "account",
        "limits": limits | {"leaf": 0, "wildcards": True},
        "exports": list(exports),
        "imports": list(imports),
        "signing_keys": list(scopes),
        "revocations": dict(revocations or {}),
        "default_permissions": {"pub": {}, "sub": {}},
    }


def scoped_user_body(account: str, tags: Sequence[str] = ()) -> dict[str, Any]:
    """Claims of a user under a scoped signing key: the scope gives its rights, so it states none."""
    return {"type": "user", "issuer_account": account, "pub": {}, "sub": {}, "tags": list(tags)}


def user_body() -> dict[str, Any]:
    """Claims of a user that its account itself signed, with every right in that account."""
    limits = dict.fromkeys(("subs", "data", "payload"), UNLIMITED)
    return {"type": "user", "pub": {}, "sub": {}} | limits


@dataclass(frozen=True, slots=True)
class Credential:
    """The credential of a user of the bus.

    Attributes:
        jwt: user JWT; no secret by itself.
        seed: secret text of the user's NKey; not in the repr.
    """

    jwt: str
    seed: str = field(repr=False)

    @property
    def public(self) -> str:
        """Public key of the user."""
        return KeyPair.from_seed(self.seed).public

    @property
    def name(self) -> str:
        """Name in the JWT; for an agent its uid."""
        return str(decode(self.jwt)["name"])

    @property
    def expires_at(self) -> float | None:
        """Epoch second at which the server closes the connection, None for never."""
        expires = decode(self.jwt).get("exp")
        return None if expires is None else float(expires)

    def sign(self, nonce: bytes) -> bytes:
        """The 64 bytes of the signature over the server's nonce."""
        return KeyPair.from_seed(self.seed).sign(nonce)

    def for_connection(self) -> Credentials:
        """The same for the library's connection."""
        return Credentials(self.sign, lambda: self.jwt)
