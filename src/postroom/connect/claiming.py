"""The key that an agent has asked for, claimed by its owner: it goes into a file of its own, and is never shown."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from postroom.client.http import Client
from postroom.errors import StateUnwritable

KEYS = "keys"
"""Folder of the keys, in the connect folder."""


@dataclass(frozen=True, slots=True)
class Claimed:
    """Whose key was claimed, and the file that has it."""

    uid: str
    nick: str
    file: Path


def claim(client: Client, code: str, folder: Path) -> Claimed:
    """Claim a key with a code of its agent (`POST /v1/keys/claim`).

    Args:
        client: with the login of the agent's owner.
        folder: gets the file `keys/NICK.key`, which only its owner may read; a former one is replaced.

    Raises:
        StateUnwritable: the folder takes no file; the code counts on.
        NotFound: the code is used, too old, or not for this login.
    """
    keys = folder / KEYS
    try:
        keys.mkdir(parents=True, exist_ok=True, mode=0o700)
        number, name = tempfile.mkstemp(prefix=".", dir=keys)  # before there is a key to lose
    except OSError as error:
        raise StateUnwritable(f"{keys} takes no file: {error.strerror}") from error
    fresh = Path(name)
    try:
        with os.fdopen(number, "w", encoding="ascii") as file:
            os.posix_fallocate(number, 0, 256)
            made = client.claim_key(code)
            file.write(made["key"] + "\n")
            file.truncate()
            file.flush()
            os.fsync(number)
        agent = made["agent"]
        if agent is None:
            raise StateUnwritable("the agent of that key is gone")
        path = keys / f"{agent['nick']}.key"
        fresh.replace(path)
    except OSError as error:
        raise StateUnwritable(f"{keys} takes no file: {error.strerror}") from error
    finally:
        fresh.unlink(missing_ok=True)
    return Claimed(agent["uid"], agent["nick"], path)
