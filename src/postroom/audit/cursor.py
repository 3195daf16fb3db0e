"""How far a reader has read, kept over restarts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from postroom.errors import StateUnwritable
from postroom.identity.privatefile import write_private


class Cursor:
    """Named numbers in one small file, replaced whole; a missing or damaged file counts as nothing read."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self) -> dict[str, int]:
        """Read what was saved last."""
        try:
            document = json.loads(self._path.read_bytes())
        except (OSError, ValueError):
            return {}
        if not isinstance(document, dict):
            return {}
        return {key: at for key, at in document.items() if type(at) is int and at >= 0}

    def save(self, numbers: Mapping[str, int]) -> None:
        """Replace what was saved."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise StateUnwritable(f"cannot write {self._path}: {error.strerror}") from error
        write_private(self._path, json.dumps(dict(numbers)).encode())
