"""Where the state of an organisation is, by its settings."""

from __future__ import annotations

import importlib
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from postroom.errors import EnvironmentFault
from postroom.settings import Settings

if TYPE_CHECKING:
    from postroom.store.postgres.place import PostgresPlace


def place_of(settings: Settings) -> PostgresPlace | Path | None:
    """The place for a `Database`.

    Raises:
        InvalidInput: the address of the database is none, or could be read on its way.
        EnvironmentFault: the driver for it is not installed.
    """
    if settings.memory:
        return None
    if not settings.database_url:
        return settings.database
    address = _needed("address").Address.parse(settings.database_url)
    return _needed("place").PostgresPlace(address, settings.org)


def shown_place(settings: Settings) -> str:
    """The address of the database for a person, without its password; "" for files in the state folder.

    Raises as `place_of`.
    """
    if settings.memory or not settings.database_url:
        return ""
    return _needed("address").Address.parse(settings.database_url).shown


def set_aside(settings: Settings) -> None:
    """Keep the state of a removed organisation under another name, where it is not in its folder. Blocks.

    Raises:
        DatabaseAway: nothing was changed.
        StoreLocked: a post room has it open.
    """
    place = place_of(settings)
    if place is not None and not isinstance(place, Path):
        try:
            place.set_aside(time.time())
        finally:
            place.close()


def _needed(module: str) -> Any:
    try:
        return importlib.import_module(f"postroom.store.postgres.{module}")
    except ImportError as error:
        raise EnvironmentFault(
            f"database.url needs a package that is not installed: {error.name}",
            remedy="pip install 'postroom[postgres]'",
        ) from error
