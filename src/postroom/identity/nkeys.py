"""NKeys: Ed25519 keys in the text form of NATS.

A key is a prefix byte for its kind, 32 bytes, and a CRC-16 (XMODEM, little endian), in base32 without padding; a seed
has two prefix bytes, its own and the kind of its public key (NATS, ADR-14). Written on `cryptography` in 60 lines,
since the packages for it bring a second Ed25519 library.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, field
from enum import IntEnum

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)

from postroom.errors import InvalidInput

KEY_BYTES = 32
_SEED_PREFIX = 18 << 3  # "S"


class Kind(IntEnum):
    """The use of a key; the value is its prefix byte, whose first five bits make the first letter."""

    ACCOUNT = 0
    OPERATOR = 14 << 3
    USER = 20 << 3


def _to_text(raw: bytes) -> str:
    checksum = binascii.crc_hqx(raw, 0).to_bytes(2, "little")
    return base64.b32encode(raw + checksum).decode("ascii").rstrip("=")


def _from_text(text: str) -> bytes:
    try:
        decoded = base64.b32decode(text + "=" * (-len(text) % 8))
    except (binascii.Error, ValueError) as error:
        # The message does not repeat the text, which may be a seed.
        raise InvalidInput("not an NKey: it is not base32") from error
    raw, checksum = decoded[:-2], decoded[-2:]
    if binascii.crc_hqx(raw, 0).to_bytes(2, "little") != checksum or _to_text(raw) != text:
        raise InvalidInput("not an NKey: the checksum is wrong")
    return raw


def _kind(value: int) -> Kind:
    try:
        return Kind(value)
    except ValueError as error:
        raise InvalidInput("not an NKey of an operator, account or user") from error


def encode_public(kind: Kind, key: bytes) -> str:
    """The text of a public key: 56 characters that begin with O, A or U."""
    return _to_text(bytes([kind]) + key)


def decode_public(text: str) -> tuple[Kind, bytes]:
    """Kind and 32 bytes of a public key.

    Raises:
        InvalidInput: not the text of a public key of a known kind.
    """
    raw = _from_text(text)
    if len(raw) != 1 + KEY_BYTES:
        raise InvalidInput("not a public NKey: the length is wrong")
    return _kind(raw[0]), raw[1:]


def encode_seed(kind: Kind, seed: bytes) -> str:
    """The text of a seed: 58 characters that begin with SO, SA or SU."""
    return _to_text(bytes([_SEED_PREFIX | kind >> 5, (kind & 31) << 3]) + seed)


def decode_seed(text: str) -> tuple[Kind, bytes]:
    """Kind of the public key and 32 bytes of a seed.

    Raises:
        InvalidInput: not the text of a seed of a known kind; the message does not repeat it.
    """
    raw = _from_text(text)
    if len(raw) != 2 + KEY_BYTES or raw[0] & 0xF8 != _SEED_PREFIX:
        raise InvalidInput("not an NKey seed")
    return _kind((raw[0] & 7) << 5 | raw[1] >> 3), raw[2:]


def verify(public: str, message: bytes, signature: bytes) -> bool:
    """Whether `signature` over `message` was made by the owner of `public`."""
    _, key = decode_public(public)
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, message)
    except InvalidSignature:
        return False
    return True


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A key that can sign.

    Attributes:
        seed: secret text; not in the repr.
    """

    kind: Kind
    seed: str = field(repr=False)
    public: str
    _private: Ed25519PrivateKey = field(repr=False, compare=False)

    @classmethod
    def generate(cls, kind: Kind) -> KeyPair:
        """A new key from the system's random source."""
        return cls._of(kind, Ed25519PrivateKey.generate())

    @classmethod
    def from_seed(cls, text: str) -> KeyPair:
        """The key of a seed."""
        kind, seed = decode_seed(text)
        return cls._of(kind, Ed25519PrivateKey.from_private_bytes(seed))

    @classmethod
    def _of(cls, kind: Kind, private: Ed25519PrivateKey) -> KeyPair:
        public = encode_public(kind, private.public_key().public_bytes_raw())
        return cls(kind, encode_seed(kind, private.private_bytes_raw()), public, private)

    def sign(self, message: bytes) -> bytes:
        """The 64 bytes of the Ed25519 signature over `message`."""
        return self._private.sign(message)
