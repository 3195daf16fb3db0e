"""The key that signs Agent Cards: ECDSA on P-256 with SHA-256 (`ES256`), which every A2A library supports.

Keys of the bus are Ed25519 (`nkeys`); many verifiers of JWS do not support it yet.
"""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass, field

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import (
    decode_dss_signature,
    encode_dss_signature,
)

from postroom.errors import InvalidInput

ALGORITHM = "ES256"
_BYTES = 32
_HASH = ec.ECDSA(hashes.SHA256())
# The same card has the same signature (RFC 6979), so that two reads of it are equal.
_SIGNING = ec.ECDSA(hashes.SHA256(), deterministic_signing=True)


def to_text(raw: bytes) -> str:
    """base64url without padding (RFC 7515, section 2)."""
    return base64.urlsafe_b64encode(raw).decode("ascii").rstrip("=")


def from_text(text: str) -> bytes:
    """The bytes of base64url without padding.

    Raises:
        InvalidInput: not base64url; the message does not repeat the text, which may be a secret.
    """
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except ValueError as error:
        raise InvalidInput("not base64url") from error
    if to_text(raw) != text:
        raise InvalidInput("not base64url")
    return raw


@dataclass(frozen=True, slots=True)
class CardKey:
    """A key that signs cards.

    Attributes:
        secret: private value in base64url; not in the repr.
        jwk: its public half (RFC 7517), with `kid`, the key's thumbprint (RFC 7638).
    """

    secret: str = field(repr=False)
    jwk: dict[str, str]
    _private: ec.EllipticCurvePrivateKey = field(repr=False, compare=False)

    @classmethod
    def generate(cls) -> CardKey:
        """A new key from the system's random source."""
        return cls._of(ec.generate_private_key(ec.SECP256R1()))

    @classmethod
    def from_secret(cls, text: str) -> CardKey:
        """The key with that private value."""
        try:
            number = int.from_bytes(from_text(text), "big")
            return cls._of(ec.derive_private_key(number, ec.SECP256R1()))
        except ValueError as error:
            raise InvalidInput("not the private value of a card key") from error

    @classmethod
    def _of(cls, private: ec.EllipticCurvePrivateKey) -> CardKey:
        point = private.public_key().public_numbers()
        public = {
            "crv": "P-256",
            "kty": "EC",
            "x": to_text(point.x.to_bytes(_BYTES, "big")),
            "y": to_text(point.y.to_bytes(_BYTES, "big")),
        }
        named = json.dumps(public, separators=(",", ":"), sort_keys=True).encode()
        kid = to_text(hashlib.sha256(named).digest())
        secret = to_text(private.private_numbers().private_value.to_bytes(_BYTES, "big"))
        return cls(secret, {**public, "alg": ALGORITHM, "use": "sig", "kid": kid}, private)

    @property
    def kid(self) -> str:
        """Its name in a key set and in signatures."""
        return self.jwk["kid"]

    def sign(self, message: bytes) -> bytes:
        """The 64 bytes of the signature over `message` (RFC 7518, section 3.4)."""
        r, s = decode_dss_signature(self._private.sign(message, _SIGNING))
        return r.to_bytes(_BYTES, "big") + s.to_bytes(_BYTES, "big")


def verify(jwk: dict[str, str], message: bytes, signature: bytes) -> bool:
    """Whether `signature` over `message` was made by the owner of `jwk`.

    Raises:
        InvalidInput: `jwk` is not a public key on P-256.
    """
    if jwk.get("kty") != "EC" or jwk.get("crv") != "P-256":
        raise InvalidInput("not a public key on P-256")
    x, y = (int.from_bytes(from_text(jwk.get(name, "")), "big") for name in ("x", "y"))
    try:
        public = ec.EllipticCurvePublicNumbers(x, y, ec.SECP256R1()).public_key()
    except ValueError as error:
        raise InvalidInput("not a public key on P-256") from error
    if len(signature) != 2 * _BYTES:
        return False
    r, s = (int.from_bytes(part, "big") for part in (signature[:_BYTES], signature[_BYTES:]))
    try:
        public.verify(encode_dss_signature(r, s), message, _HASH)
    except InvalidSignature:
        return False
    return True
