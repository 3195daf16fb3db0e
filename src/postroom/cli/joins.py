"""The joins of this user that have not ended: each has a secret, by which the same again after a lost answer is known.

They are in a file that only this user can read, beside the logins.
"""

from __future__ import annotations

import json
from pathlib import Path

from postroom.errors import EnvironmentFault, StateUnwritable

FILE = "joining.json"
MOST = 50
"""Joins that are kept: of further ones the oldest is forgotten."""


def begun(what: str) -> str:
    """The secret of a join, new if it was not begun before; it is on disk on return.

    Raises:
        StateUnwritable: it cannot be kept.
        EnvironmentFault: others can read the file, or it is damaged.
    """
    from postroom.client.calls import new_key

    known = _read()
    if what not in known:
        known = dict(list(known.items())[1 - MOST :]) | {what: new_key()}
        _write(known)
    return known[what]


def ended(what: str) -> None:
    """Forget a join whose key is kept."""
    known = _read()
    if known.pop(what, None) is not None:
        _write(known)


def _file() -> Path:
    from postroom.client.logins import path

    return path().with_name(FILE)


def _read() -> dict[str, str]:
    from postroom.client.locate import read_private

    file = _file()
    content = read_private(file)
    if content is None:
        return {}
    try:
        return {str(what): str(key) for what, key in json.loads(content).items()}
    except (ValueError, AttributeError) as error:
        raise EnvironmentFault(
            f"{file} is not what `postroom join` writes", remedy="remove it"
        ) from error


def _write(known: dict[str, str]) -> None:
    from postroom.identity import privatefile

    file = _file()
    try:
        privatefile.prepare(file.parent)
        privatefile.replace(file, json.dumps(known, indent=1).encode())
    except OSError as error:
        raise StateUnwritable(f"cannot write {file}: {error.strerror}") from error
