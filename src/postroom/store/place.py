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
    from postroom.store.surreal.place import TasksElsewhere


def place_of(settings: Settings) -> PostgresPlace | SQLitePlace | TasksElsewhere:
    """The place for a `Database`.

    Raises:
        InvalidInput: the address of the database or of the tasks is none, or could be read on its way.
        EnvironmentFault: the driver for it is not installed.
    """
    place = sql_place_of(settings)
    if not settings.task_store:
        return place
    return _needed("surreal.place", "tasks.store", "surrealdb").beside(place, settings)


def sql_place_of(settings: Settings) -> PostgresPlace | SQLitePlace:
    """The place of all but tasks that lie elsewhere.

    Raises:
        InvalidInput: the address of the database is none, or could be read on its way.
        EnvironmentFault: the driver for it is not installed.
    """
    if settings.memory:
        return SQLitePlace(None, org=settings.org, installation=str(settings.state))
    if not settings.database_url:
        return SQLitePlace(settings.database, org=settings.org, accounts=settings.accounts)
    address = _postgres("connection").Address.parse(settings.database_url)
    return _postgres("place").PostgresPlace(address, settings.org)


def shown_place(settings: Settings) -> str:
    """The address of the database for a person, without its password; "" for files in the state folder.

    Raises as `place_of`.
    """
    if settings.memory or not settings.database_url:
        return ""
    return _postgres("connection").Address.parse(settings.database_url).shown


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


def _postgres(module: str) -> Any:
    return _needed(f"postgres.{module}", "database.url", "postgres")


def _needed(module: str, setting: str, extra: str) -> Any:
    try:
        return importlib.import_module(f"postroom.store.{module}")
    except ImportError as error:
        raise EnvironmentFault(
            f"{setting} needs a package that is not installed: {error.name}",
            remedy=f"pip install 'postroom[{extra}]'",
        ) from error
