"""`postroom spawn`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from postroom.cli.options import connect, json_option, state_folder, state_option
from postroom.cli.output import print_json
from postroom.protocol.template import LEVELS
from postroom.protocol.text import one_line

if TYPE_CHECKING:
    from postroom.client.records import Worker


@click.command("spawn")
@click.argument("template", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--project", "-p", metavar="P", default="", help="Project that the worker joins.")
@click.option("--name", "-n", metavar="NICK", default="", help="Nick instead of the template's.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Value for a key of the template's [overrides].",
)
@click.option(
    "--sandbox",
    metavar="NAME",
    default="",
    help="Sandbox instead of the template's: auto, bubblewrap, netns, landlock, seatbelt, opensandbox or none.",
)
@click.option(
    "--isolation",
    type=click.Choice(LEVELS),
    default=None,
    help="Accept a wall that is no stronger than this; without it one that is enforced is demanded.",
)
@json_option
@state_option()
def command(
    template: Path,
    project: str,
    name: str,
    settings: tuple[str, ...],
    sandbox: str,
    isolation: str | None,
    as_json: bool,
) -> None:
    """Start a worker from the file TEMPLATE; starts a post room if none is running.

    A --set value that begins with ./ or ../ becomes an absolute path, and so does what follows an @ (as
    in --set folder=@src); every other value is taken as it stands.
    """
    from postroom.cli.template import overrides, read

    bundle, values = read(template), overrides(settings)
    _ensure_running()
    with connect() as client:
        worker = client.spawn(
            bundle.text,
            files=bundle.files,
            name=name.removeprefix("@"),
            project=project.removeprefix("#"),
            overrides=values,
            sandbox=sandbox,
            isolation=isolation or "",
        )
    if as_json:
        print_json(worker)
    else:
        _print(worker)


def _ensure_running() -> None:
    from postroom.client.locate import locate
    from postroom.errors import NotRunning

    state = state_folder()
    try:
        locate(state)
    except NotRunning:
        from postroom.cli.detach import ensure

        click.echo(f"no post room is running: starting one on {state} ...", err=True)
        server = ensure(state)
        click.echo(f"post room is up at {server.url} (end it with: postroom down)", err=True)


def _print(worker: Worker) -> None:
    wall = worker["sandbox"]
    level = one_line(str(wall["level"]))
    sandbox = f"{one_line(str(wall['provider']))}: {level}"
    if level != LEVELS[0]:
        sandbox = click.style(sandbox, fg="red", bold=True)
    place = f" in #{one_line(worker['project'])}" if worker["project"] else ""
    for limit in worker.get("unenforced", []):
        click.echo(f"not enforced on this machine: compute.{one_line(limit)}", err=True)
    click.echo(
        f"spawned @{one_line(worker['nick'])} ({one_line(worker['uid'])}){place}, sandbox {sandbox}"
    )
