"""What somebody's own nats-server must be told of the post room in a state folder, be it up or down."""

from __future__ import annotations

import os
from typing import Any

from postroom.bus.block import configuration_block
from postroom.control.statefile import StateLock, prepare
from postroom.identity import keyring
from postroom.identity.trust import Trust
from postroom.settings import DEFAULT_ORG, Settings


def nats_block(settings: Settings, folder: str) -> dict[str, Any]:
    """The configuration; keys that are missing are made, which takes the state folder's lock.

    Args:
        settings: name the state folder.
        folder: of the server, on its own machine.

    Raises:
        AlreadyRunning: there are no keys yet, and a post room is just making them.
        InvalidInput: the file of keys is damaged.
        StateUnwritable: the state folder cannot be written.
    """
    os.umask(0o077)
    prepare(settings)
    if keyring.load(settings.keys) is not None:
        trust = Trust.load_or_create(settings.keys, DEFAULT_ORG)
    else:
        lock = StateLock.acquire(settings)
        try:
            trust = Trust.load_or_create(settings.keys, DEFAULT_ORG)
        finally:
            lock.release()
    return configuration_block(
        operator_jwt=trust.operator_jwt,
        system_account=trust.system_account,
        system_jwt=trust.account_jwts()[trust.system_account],
        proxies=trust.proxies,
        folder=folder,
    )
