"""Where the state of an organisation is, by its settings."""

from __future__ import annotations

import importlib
import time
from typing import TYPE_CHECKING, Any

from postroom.errors import EnvironmentFault
from postroom.settings import Settings
from postroom.store.sqlite import SQLitePlace

if TYPE_CHECKING:
    from postroom.store.postgres.place import PostgresPlace


def place_of(settings: Settings) -> PostgresPlace | SQLitePlace:
    """The place for a `Database`.

    Raises:
        InvalidInput: the address of the database is none, or could be read on its way.
        EnvironmentFault: the driver for it is not installed.
    """
    if settings.memory:
        return SQLitePlace(None, org=settings.org, installation=str(settings.state))
    if not settings.database_url:
        return SQLitePlace(settings.database, org=settings.org, accounts=settings.accounts)
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
    """Keep the rows of a removed organisation under another name, those that are not in its folder. Blocks.

    Raises:
        DatabaseAway: nothing was changed.
        StoreLocked: a post room has it open.
    """
    place = place_of(settings)
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
