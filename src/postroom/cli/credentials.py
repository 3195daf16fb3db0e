"""The credentials of the chosen post room, also while it does not run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from postroom.cli.options import chosen_org, connect, state_folder
from postroom.errors import NotRunning

if TYPE_CHECKING:
    from pathlib import Path

    from postroom.gateway.credentials import BoundCredential
    from postroom.protocol.shapes import Credential


def known() -> Sequence[Credential]:
    """What the post room keeps; read from its file where it does not run."""
    try:
        with connect() as client:
            return client.credentials()
    except NotRunning:
        return [credential.shown() for credential in kept(state_folder())]


def kept(state: Path) -> Sequence[BoundCredential]:
    """What the file in the state folder has."""
    from postroom.gateway.credentials import Credentials
    from postroom.settings import DEFAULT_ORG, Settings

    return Credentials(Settings(state=state).credentials_file).of(chosen_org() or DEFAULT_ORG)
