"""`postroom spawn`."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from postroom.cli.options import (
    chosen_login,
    chosen_org,
    connect,
    json_option,
    state_folder,
    state_option,
)
from postroom.cli.output import print_json
from postroom.protocol.template import LEVELS
from postroom_a2a.text import one_line

if TYPE_CHECKING:
    from postroom.protocol.shapes import Worker
    from postroom.protocol.template import Template


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
@click.option("--detach", "-d", is_flag=True, help="Do not wait until its agent has started.")
@click.option(
    "--verbose", "-v", is_flag=True, help="Say all that is known of a sandbox that cannot be had."
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
    detach: bool,
    verbose: bool,
    as_json: bool,
) -> None:
    """Start a worker from the file TEMPLATE; starts a post room if none is running.

    It waits until the agent has started or ended, for 5 seconds at most.

    A --set value that begins with ./ or ../ becomes an absolute path, and so does what follows an @ (as
    in --set folder=@src), and a value of which the template makes a folder to read; every other value is
    taken as it stands.
    """
    from postroom.cli.starting import WAIT, report
    from postroom.cli.template import check, overrides, read

    bundle = read(template)
    values = overrides(settings, bundle.text)
    _ensure_running(check(bundle, values, sandbox))
    with connect() as client, _details(verbose):
        worker = client.spawn(
            bundle.text,
            files=bundle.files,
            name=name.removeprefix("@"),
            project=project.removeprefix("#"),
            overrides=values,
            sandbox=sandbox,
            isolation=isolation or "",
            path=str(template.absolute()),
            wait=0.0 if detach else WAIT,
        )
    if as_json:
        print_json(worker)
    else:
        _print(worker)
    report(worker)


@contextmanager
def _details(verbose: bool) -> Generator[None]:
    """With `verbose`, show the cause of an error."""
    from postroom.errors import SandboxUnavailable

    try:
        yield
    except SandboxUnavailable as error:
        for line in error.details if verbose else ():
            click.echo(one_line(line), err=True)
        raise


def _ensure_running(template: Template) -> None:
    from postroom.client.locate import locate
    from postroom.errors import NotRunning

    if chosen_login() is not None:
        return  # one of another machine, which is not ours to start
    state = state_folder()
    try:
        locate(state)
    except NotRunning:
        from postroom.cli.detach import ensure

        _check_credentials(template, state)
        click.echo(f"no post room is running: starting one on {state} ...", err=True)
        server = ensure(state)
        click.echo(f"post room is up at {server.url} (end it with: postroom down)", err=True)


def _check_credentials(template: Template, state: Path) -> None:
    """Check the credentials that the template names; without a running post room, against its file."""
    if not template.credentials:
        return
    from postroom.gateway.credentials import Credentials, check_credentials
    from postroom.settings import DEFAULT_ORG, Settings

    known = Credentials(Settings(state=state).credentials_file)
    check_credentials(template, known.of(chosen_org() or DEFAULT_ORG))


def _print(worker: Worker) -> None:
    from postroom.cli.starting import sandbox_text

    place = f" in #{one_line(worker['project'])}" if worker["project"] else ""
    click.echo(f"spawned @{one_line(worker['nick'])}{place}, {sandbox_text(worker)}")
