"""The keys that sign what goes to webhooks.

A request has both forms of signature of Standard Webhooks 1.0, so a receiver takes the one that suits it:

    v1    HMAC-SHA256 under a secret that each receiver has of its own: `whsec_...`
    v1a   Ed25519, which anybody checks by the public key: `whpk_...`, and in the JWK set of the organisation

The organisation's key, and the secrets of callers for pushes, are made of one seed, which is kept with the other keys.
The secret of a webhook is a row of its own, sealed. What goes there has the headers `X-A2A-...` beside.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
from collections.abc import Sequence
from dataclasses import dataclass, field

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from postroom.identity.cardkey import to_text

ID, TIMESTAMP, SIGNATURE = "webhook-id", "webhook-timestamp", "webhook-signature"
"""The headers that say what is signed, and how."""

SECRET, PUBLIC = "whsec_", "whpk_"
"""How a shared secret and a public key begin."""


@dataclass(frozen=True, slots=True)
class WebhookKey:
    """The keys of one organisation.

    Attributes:
        seed: 32 secret bytes; not in the repr.
    """

    seed: bytes = field(repr=False)
    _private: Ed25519PrivateKey = field(repr=False, compare=False)
    _root: str = field(default="", repr=False, compare=False)

    @classmethod
    def derive(cls, secret: str, org: str) -> WebhookKey:
        """The keys of `org` under a secret of the installation, which they do not reveal."""
        seed = hmac.digest(secret.encode(), f"postroom webhooks of {org}".encode(), "sha256")
        private = hmac.digest(seed, b"ed25519", "sha256")
        return cls(seed, Ed25519PrivateKey.from_private_bytes(private), secret)

    def of(self, org: str) -> WebhookKey:
        """The keys of another organisation: its callers know their secrets there."""
        return self.derive(self._root, org)

    def secret(self, owner: str) -> str:
        """The shared secret of `owner`, a uid; nobody makes another's of it."""
        return SECRET + _base64(hmac.digest(self.seed, f"secret of {owner}".encode(), "sha256"))

    @property
    def public(self) -> str:
        """The public key, as Standard Webhooks writes it."""
        return PUBLIC + _base64(self._private.public_key().public_bytes_raw())

    @property
    def jwk(self) -> dict[str, str]:
        """The public key for a JWK set (RFC 8037); its `kid` is the thumbprint (RFC 7638)."""
        x = to_text(self._private.public_key().public_bytes_raw())
        named = f'{{"crv":"Ed25519","kty":"OKP","x":"{x}"}}'
        kid = to_text(hashlib.sha256(named.encode()).digest())
        return {"crv": "Ed25519", "kty": "OKP", "x": x, "alg": "EdDSA", "use": "sig", "kid": kid}

    def headers(
        self, secrets: Sequence[str], message: str, at: float, body: bytes
    ) -> list[tuple[str, str]]:
        """The signatures of a request.

        Args:
            secrets: of its receiver; each signs.
            message: its id, the same for every attempt.
            at: the instant of this attempt, in seconds since the epoch.
        """
        seconds = str(int(at))
        signed = b".".join((message.encode(), seconds.encode(), body))
        keys = [base64.b64decode(secret.removeprefix(SECRET)) for secret in secrets]
        shared = [f"v1,{_base64(hmac.digest(key, signed, 'sha256'))}" for key in keys]
        public = f"v1a,{_base64(self._private.sign(signed))}"
        return [(ID, message), (TIMESTAMP, seconds), (SIGNATURE, " ".join((*shared, public)))]


def new_secret() -> str:
    """A shared secret for one webhook, from the system's random source."""
    return SECRET + _base64(os.urandom(32))


def a2a_headers(
    secrets: Sequence[str], event: str, timestamp: str, body: bytes
) -> list[tuple[str, str]]:
    """The headers `X-A2A-...`: the signature is over `timestamp.body` under the secret as it is written."""
    signed = timestamp.encode() + b"." + body
    made = [hmac.digest(secret.encode(), signed, "sha256").hex() for secret in secrets]
    return [
        ("X-A2A-Event", event),
        ("X-A2A-Timestamp", timestamp),
        ("X-A2A-Signature", ",".join(f"sha256={each}" for each in made)),
    ]


def _base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode("ascii")
