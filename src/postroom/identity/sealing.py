"""Secrets that rows of the database hold, sealed: AES-256-GCM under a key beside the database.

A sealed text is bound to its place, so one that is moved to another row does not open there. The key is in the folder
of keys, which a backup has in its own sealed part.
"""

from __future__ import annotations

import base64
import os
import threading
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from postroom.errors import StateUnwritable
from postroom.identity import privatefile

BYTES = 32
"""Of the key: AES-256."""

NONCE = 12
"""Bytes before each sealed text, new for each: what the same key seals of one kind is far below 2^32."""


class Sealer:
    """Seals and opens texts under the key in `file`, which is made when something is first sealed.

    Raises:
        StateUnwritable: the file cannot be read, and when the key is made: not written.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._key = self._read()
        self._making = threading.Lock()  # each organisation writes in a thread of its own

    def seal(self, text: str, place: str) -> str:
        """`text` as it is stored at `place`; "" stays so, since it is no secret."""
        if not text:
            return ""
        with self._making:
            key = self._key = self._key or self._make()
        nonce = os.urandom(NONCE)
        sealed = key.encrypt(nonce, text.encode(), place.encode())
        return base64.b64encode(nonce + sealed).decode("ascii")

    def open(self, sealed: str, place: str) -> str | None:
        """The text that was stored at `place`; None where it was sealed under another key, elsewhere, or is damaged."""
        if not sealed:
            return ""
        try:
            raw = base64.b64decode(sealed, validate=True)
            if self._key is None:
                return None
            return self._key.decrypt(raw[:NONCE], raw[NONCE:], place.encode()).decode()
        except (ValueError, InvalidTag):
            return None

    def _read(self) -> AESGCM | None:
        try:
            self._file.chmod(0o600)
            key = self._file.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StateUnwritable(f"cannot read {self._file}: {error.strerror}") from error
        # One that is damaged opens nothing, as a lost one; the next secret gets a new one.
        return AESGCM(key) if len(key) == BYTES else None

    def _make(self) -> AESGCM:
        key = AESGCM.generate_key(8 * BYTES)
        try:
            privatefile.prepare(self._file.parent)
            privatefile.replace(self._file, key)
        except OSError as error:
            raise StateUnwritable(f"cannot write {self._file}: {error.strerror}") from error
        return AESGCM(key)
