"""The tasks' place, by the settings of the post room."""

from __future__ import annotations

from pathlib import Path

from postroom.errors import EnvironmentFault, InvalidInput
from postroom.settings import Settings
from postroom.store.database import Place
from postroom.store.surreal.place import TaskDatabase, TasksElsewhere
from postroom_a2a.surreal import Address, driver


def beside(place: Place, settings: Settings) -> TasksElsewhere:
    """`place` with the tasks where the settings say.

    Raises:
        InvalidInput: the address is none, could be read on its way, or does not fit to a post room in memory.
        EnvironmentFault: the package is not installed, or the file with the password cannot be read.
    """
    driver.check()
    address = Address.parse(settings.task_store).with_password(_password(settings))
    in_memory = address.embedded and address.folder is None
    if in_memory != settings.memory:
        raise InvalidInput(
            f"tasks.store is {address.shown}, and the log is {'in memory' if settings.memory else 'on disk'}",
            remedy="both have to last equally long: surrealdb+mem:// is for a post room in memory, and for no other",
        )
    home = None if settings.memory else settings.home
    return TasksElsewhere(place, TaskDatabase(address, settings.org, home))


def _password(settings: Settings) -> str:
    if settings.task_store_password:
        return settings.task_store_password
    return (
        ""
        if settings.task_store_password_file is None
        else _read(settings.task_store_password_file)
    )


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise EnvironmentFault(
            f"cannot read {path}, which has the password of tasks.store",
            remedy="check tasks.password_file",
        ) from error
