"""`postroom prune`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from postroom.cli.options import connect, json_option, state_option
from postroom.cli.output import print_json
from postroom_a2a.text import one_line

if TYPE_CHECKING:
    from postroom.protocol.shapes import Leftover


@click.command("prune")
@click.option("--dry-run", is_flag=True, help="Only say what would be deleted.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@state_option()
def command(dry_run: bool, yes: bool, as_json: bool) -> None:
    """Delete what removed workers have left on disk: their workspaces and logs.

    Messages and tasks stay, and so does everything of workers that are there.
    """
    from postroom.cli.arguments import confirm

    with connect() as client:
        found = client.leftovers()
        if found and not as_json:
            _show(found)
        if found and not dry_run:
            confirm(
                "delete this for ever?",
                "nobody can be asked: nothing was deleted",
                "postroom prune --yes",
                yes=yes,
            )
            found = client.prune()
    if as_json:
        print_json({"leftovers": found, "deleted": not dry_run})
    elif not found:
        click.echo("removed workers have left nothing")
    elif not dry_run:
        click.echo(f"deleted {len(found)} {_folders(len(found))}, {_size(found)}")


def _show(found: list[Leftover]) -> None:
    for left in found:
        nick = f"@{one_line(left['nick'])}" if left["nick"] else "unknown"
        click.echo(f"{nick}  {_size([left])}  {one_line(left['folder'])}")


def _folders(number: int) -> str:
    return "folder" if number == 1 else "folders"


def _size(found: list[Leftover]) -> str:
    sizes = [left["bytes"] for left in found if left["bytes"] is not None]
    least = "" if len(sizes) == len(found) else "at least "
    return f"{least}{sum(sizes) / (1024 * 1024):.1f} MiB"
