"""API keys in the keyring of the system, by the library `keyring` (the extra `postroom[keyring]`), if both are there.

A backend counts only if the library itself recommends it: it also has some that keep nothing, or keep it in the clear.
"""

from __future__ import annotations

from contextlib import suppress
from types import ModuleType

from postroom.errors import EnvironmentFault

SERVICE = "postroom"
"""Under which name the keyring shows our keys."""

RECOMMENDED = 1
"""The least priority of a backend that the library takes by itself."""


def keep(place: str, key: str) -> bool:
    """Keep the key of a post room; returns whether there is a keyring that has taken it."""
    keyring = _keyring()
    if keyring is None:
        return False
    try:
        keyring.set_password(SERVICE, place, key)
        return keyring.get_password(SERVICE, place) == key
    except Exception:  # noqa: BLE001 (a backend is foreign code; one that fails takes nothing)
        return False


def read(place: str) -> str:
    """The key of a post room.

    Raises:
        EnvironmentFault: the keyring is gone or locked, or has none.
    """
    keyring, reason = _keyring(), "there is no keyring any more"
    if keyring is not None:
        try:
            if key := keyring.get_password(SERVICE, place):
                return key
            reason = "the keyring has none"
        except Exception as error:  # noqa: BLE001 (as above)
            reason = f"the keyring does not give it out: {type(error).__name__}"
    raise EnvironmentFault(
        f"the key for {place} cannot be read: {reason}",
        remedy="unlock the keyring, or log in again: postroom login URL",
    )


def forget(place: str) -> None:
    """Remove the key of a post room, if the keyring has it."""
    keyring = _keyring()
    if keyring is None:
        return
    with suppress(Exception):  # as above; it is gone, or cannot be reached any more
        keyring.delete_password(SERVICE, place)


def _keyring() -> ModuleType | None:
    try:
        import keyring
    except ImportError:
        return None
    try:
        return keyring if keyring.get_keyring().priority >= RECOMMENDED else None
    except Exception:  # noqa: BLE001 (as above)
        return None
