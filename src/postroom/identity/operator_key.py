"""The operator's API key: one for all organisations, in a private file, for as long as the operator wants."""

from __future__ import annotations

from pathlib import Path

from postroom.errors import EnvironmentFault, InvalidInput, StateUnwritable
from postroom.identity import privatefile
from postroom.identity.tokens import api_key_uid, digest, new_api_key

MOST = 4096
"""Bytes of the file that are read: a key has 101."""


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
