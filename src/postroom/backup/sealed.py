"""The keys in a backup, sealed with a passphrase: scrypt makes the key, AES-256-GCM encrypts."""

from __future__ import annotations

import base64
import json
import secrets
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from postroom.errors import InvalidInput

SHORTEST = 8
"""Characters of a passphrase: what is shorter is found by trying, however slow each try is."""

_COST = {"n": 2**16, "r": 8, "p": 1}
"""64 MiB and a fifth of a second for each try."""

_MOST = 2**20
"""The highest cost that is taken from a file, 1 GiB: a made-up one must not fill the memory."""


def check_passphrase(passphrase: str) -> str:
    """The passphrase.

    Raises:
        InvalidInput: it is too short.
    """
    if len(passphrase) < SHORTEST:
        raise InvalidInput(f"the passphrase has fewer than {SHORTEST} characters")
    return passphrase


def seal(content: bytes, passphrase: str, about: bytes) -> bytes:
    """`content` encrypted; it can be opened beside the same `about` alone."""
    salt, nonce = secrets.token_bytes(16), secrets.token_bytes(12)
    key = _key(passphrase, salt, _COST)
    sealed = AESGCM(key).encrypt(nonce, content, about)
    return json.dumps(
        {
            "kdf": "scrypt",
            **_COST,
            "cipher": "AES-256-GCM",
            "salt": _text(salt),
            "nonce": _text(nonce),
            "sealed": _text(sealed),
        }
    ).encode()


def unseal(document: bytes, passphrase: str, about: bytes) -> bytes:
    """The content that `seal` encrypted.

    Raises:
        InvalidInput: the passphrase is wrong, or the document was changed.
    """
    try:
        said: dict[str, Any] = json.loads(document)
        cost = {name: int(said[name]) for name in _COST}
        if (
            said["kdf"] != "scrypt"
            or not 1 < cost["n"] <= _MOST
            or (cost["r"], cost["p"]) != (8, 1)
        ):
            raise InvalidInput("the keys are sealed in a way that this Postroom does not know")
        salt, nonce, sealed = (base64.b64decode(said[name]) for name in ("salt", "nonce", "sealed"))
        return AESGCM(_key(passphrase, salt, cost)).decrypt(nonce, sealed, about)
    except InvalidTag as error:
        raise InvalidInput(
            "the passphrase does not open the keys of this backup",
            remedy="give the one that it was made with",
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidInput("the keys in this backup are damaged") from error


def _key(passphrase: str, salt: bytes, cost: dict[str, int]) -> bytes:
    return Scrypt(salt=salt, length=32, **cost).derive(passphrase.encode())


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()
