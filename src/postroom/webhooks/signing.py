"""Signatures of what goes to a webhook (Standard Webhooks 1.0), in both of its forms. Pure.

    v1    HMAC-SHA256 under a secret that each receiver has of its own: `whsec_...`
    v1a   Ed25519, which anybody checks by the public key: `whpk_...`, and in the JWK set of the organisation

Every request has both, so a receiver takes the one that suits it. All keys are made of one seed, which is kept with the
other keys: there is nothing more to keep, to back up or to lose.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
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

    @classmethod
    def derive(cls, secret: str, org: str) -> WebhookKey:
        """The keys of `org` under a secret of the installation, which they do not reveal."""
        seed = hmac.digest(secret.encode(), f"postroom webhooks of {org}".encode(), "sha256")
        private = hmac.digest(seed, b"ed25519", "sha256")
        return cls(seed, Ed25519PrivateKey.from_private_bytes(private))

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

    def headers(self, owner: str, message: str, at: float, body: bytes) -> list[tuple[str, str]]:
        """The signature of a request to a receiver of `owner`.

        Args:
            message: its id, the same for every attempt.
            at: the instant of this attempt, in seconds since the epoch.
        """
        seconds = str(int(at))
        signed = b".".join((message.encode(), seconds.encode(), body))
        shared = base64.b64decode(self.secret(owner).removeprefix(SECRET))
        both = (
            f"v1,{_base64(hmac.digest(shared, signed, 'sha256'))}",
            f"v1a,{_base64(self._private.sign(signed))}",
        )
        return [(ID, message), (TIMESTAMP, seconds), (SIGNATURE, " ".join(both))]


def _base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode("ascii")
