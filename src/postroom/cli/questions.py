"""What `postroom --no-tui` asks in a repository where no worker works yet: the screen's first dialog, in lines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from postroom.cli.options import connect, state_folder
from postroom_a2a.text import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from postroom.workers.offer import Offer


def spawned() -> int | None:
    """Offer a worker, and start the one that the person wants; None if nothing is offered or wanted.

    Returns the exit status of what it is told to do first.
    """
    from postroom.workers.offer import look

    with connect() as client:
        status = client.status()
        if "pid" not in status["server"]:
            return None  # who does not operate starts no workers
        found = look(client.credentials(), status["workers"], state_folder())
    if found.folder is None:
        if found.why:
            click.echo(found.why, err=True)
        return None
    words = answered(found)
    if not words:
        return None
    from postroom.cli.commands.spawn import command

    result = command.main(words, "spawn", standalone_mode=False, parent=click.get_current_context())
    return result if isinstance(result, int) else 0


def answered(found: Offer) -> Sequence[str]:
    """What follows `postroom spawn`, as the person answers; nothing if they want none."""
    from postroom.workers.offer import HOW, means, words

    ready = [agent for agent in found.agents if agent.ready]
    for agent in found.agents:
        click.echo(f"{one_line(agent.title, 60)}: key: {one_line(agent.key, 300)}", err=True)
        if agent.add:
            click.echo(f"  to store one: {one_line(agent.add, 500)}", err=True)
    if not ready:
        click.echo("with a key stored, postroom offers a worker here", err=True)
        return []
    if not click.confirm(
        f"No worker works on {found.folder} yet. Start one?", default=True, err=True
    ):
        return []
    agent = ready[_chosen("agent", [one_line(each.title, 60) for each in ready])]
    folder = click.prompt("works on", default=str(found.folder), err=True, type=FOLDER)
    ways = [f"{way}: {one_line(means(agent, way), 500)}" for way in HOW]
    how = list(HOW)[_chosen("how far", ways)]
    task = click.prompt("first task, or nothing", default="", show_default=False, err=True)
    line = words(agent, folder, how, task)
    return [*line, "--wait"] if task.strip() else line


class _Folder(click.ParamType):
    """A folder, as people write it; absolute then."""

    name = "folder"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Check it."""
        place = Path(value)
        if value.startswith("~"):
            place = place.expanduser()
        if not place.is_dir():
            self.fail(f"{one_line(value, 200)} is not a folder", param, ctx)
        return str(place.absolute())


FOLDER = _Folder()


def _chosen(what: str, names: Sequence[str]) -> int:
    """The place of one of several, the first by default; no question where there is one."""
    if len(names) == 1:
        return 0
    for number, name in enumerate(names, 1):
        click.echo(f"  {number} {name}", err=True)
    number = click.prompt(what, default=1, err=True, type=click.IntRange(1, len(names)))
    return number - 1
