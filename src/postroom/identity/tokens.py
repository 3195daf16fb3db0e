"""Bearer tokens and API keys, and their stored form; and the operator's API key.

A token is shown once; only its SHA-256 is stored. 32 random bytes need no slow hash: nobody can guess them. The
operator's key is one for all organisations, in a private file, for as long as the operator wants.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from pathlib import Path

from postroom.errors import EnvironmentFault, InvalidInput, StateUnwritable
from postroom.identity import privatefile
from postroom.protocol.ids import check_uid

TOKEN_BYTES = 32

_API_KEY = re.compile(r"a2a_([0-9a-f]{32})_[0-9a-f]{64}")

MOST = 4096
"""Bytes of the file that are read: a key has 101."""


def new_token() -> str:
    """A bearer token: 64 hex digits, so that it needs no quoting anywhere."""
    return secrets.token_hex(TOKEN_BYTES)


def new_api_key(uid: str) -> str:
    """An API key of agent `uid`: `a2a_<uid>_<64 hex digits>`."""
    return f"a2a_{check_uid(uid)}_{secrets.token_hex(TOKEN_BYTES)}"


def api_key_uid(key: str) -> str:
    """The uid that an API key claims; `matches` checks the claim.

    Raises:
        InvalidInput: not in the form of an API key; the message does not repeat it.
    """
    found = _API_KEY.fullmatch(key)
    if found is None:
        raise InvalidInput("not an API key", remedy="a2a_<agent id>_<64 hex digits>")
    return found.group(1)


def digest(token: str) -> str:
    """The stored form of a token: its SHA-256, 64 hex digits."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def equal(one: str, other: str) -> bool:
    """Whether two digests are the same, in constant time."""
    return hmac.compare_digest(one.encode(), other.encode())


def matches(token: str, stored: str) -> bool:
    """Whether `token` is the one whose `digest` is `stored`, in constant time."""
    return hmac.compare_digest(digest(token).encode(), stored.encode("utf-8", "surrogatepass"))


class OperatorKey:
    """The operator's present key.

    Attributes:
        text: the key; local commands find it in `server.json`.
        sha256: its digest.
    """

    def __init__(self, path: Path, text: str) -> None:
        self._path = path
        self.text = text
        self.sha256 = digest(text)

    def __repr__(self) -> str:
        return f"OperatorKey({self._path})"

    @classmethod
    def load_or_create(cls, path: Path, uid: str) -> OperatorKey:
        """The key in the file `path`, or a new one of agent `uid` there.

        Raises:
            EnvironmentFault: the file has no key in it.
            StateUnwritable: it cannot be read or written.
        """
        try:
            path.chmod(0o600)
            with path.open(encoding="ascii", errors="replace") as file:
                text = file.read(MOST).strip()
        except FileNotFoundError:
            made = cls(path, new_api_key(uid))
            made._store(made.text)
            return made
        except OSError as error:
            raise StateUnwritable(f"cannot read {path}: {error.strerror}") from error
        try:
            api_key_uid(text)
        except InvalidInput as error:
            raise EnvironmentFault(
                f"{path} does not hold the operator's API key",
                remedy="remove the file: the next start makes another key",
            ) from error
        return cls(path, text)

    def rotate(self) -> str:
        """Replace the key, on disk first; the former one is worth nothing when this returns."""
        text = new_api_key(api_key_uid(self.text))
        self._store(text)
        self.text, self.sha256 = text, digest(text)
        return text

    def _store(self, text: str) -> None:
        try:
            privatefile.replace(self._path, f"{text}\n".encode())
        except OSError as error:
            raise StateUnwritable(f"cannot write {self._path}: {error.strerror}") from error
