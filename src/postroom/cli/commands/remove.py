"""`postroom remove`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from postroom.cli.options import connect, json_option, state_option
from postroom.cli.several import each, nicks_argument
from postroom.protocol.modes import DIRECT
from postroom_a2a.text import one_line

if TYPE_CHECKING:
    from postroom.protocol.shapes import Removed, Workspace


@click.command("remove")
@nicks_argument
@click.option("--purge", is_flag=True, help="Delete its workspace and log, too.")
@click.option("--yes", is_flag=True, help="Do not ask, also if it has open tasks.")
@json_option
@state_option()
def command(nicks: tuple[str, ...], purge: bool, yes: bool, as_json: bool) -> int:
    """Stop each worker NICK and give up its address: what waits for it is dead, its nick is free.

    Its workspace stays on disk, until `postroom prune`.
    """
    with connect() as client:

        def end(nick: str) -> Removed:
            if not yes:
                worker = client.worker(nick)
                _ask(nick, worker.get("open_tasks", 0), purge=purge)
                if purge:
                    _ask_of_work(nick, worker.get("workspace"))
            return client.remove(nick, purge=purge)

        return each(nicks, end, lambda gone: _line(gone, purge=purge), as_json=as_json)


def _line(removed: Removed, *, purge: bool) -> str:
    said = f"removed @{one_line(removed['nick'])}"
    return f"{said} with its files" if purge else f"{said}; its files stay until: postroom prune"


def _ask_of_work(nick: str, workspace: Workspace | None) -> None:
    """Ask before a folder with work is deleted; a folder that it wrote itself is not its own."""
    if not workspace or workspace["mode"] == DIRECT:
        return
    from postroom.cli.arguments import confirm

    name, branch = nick.removeprefix("@"), one_line(workspace["branch"])
    keeps = f"its work stays on {branch}" if branch else "all its work is in it"
    confirm(
        f"delete the folder of @{name}? {keeps}",
        f"the folder of @{name} would be deleted; {keeps}",
        f"postroom remove {name} --purge --yes",
        yes=False,
    )


def _ask(nick: str, open_tasks: int, *, purge: bool) -> None:
    if not open_tasks:
        return
    from postroom.cli.arguments import confirm

    name = nick.removeprefix("@")
    tasks = "1 open task" if open_tasks == 1 else f"{open_tasks} open tasks"
    confirm(
        f"@{name} has {tasks}, which will fail; remove it?",
        f"@{name} has {tasks}, which would fail",
        f"postroom remove {name}{' --purge' if purge else ''} --yes",
        yes=False,
    )
