"""`postroom up`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from postroom.cli.options import state_folder, state_option

if TYPE_CHECKING:
    from postroom.settings import Settings

PORT = click.IntRange(0, 65535)
FILE = click.Path(dir_okay=False)
_FIELDS = {"port": "http_port"}
"""Options whose setting has another name."""

AUTO = "auto"
UNITS = ("systemd", "launchd")


@click.command("up")
@click.option("--port", type=PORT, metavar="N", help="HTTP port; 0 means any free one.")
@click.option("--nats-port", type=PORT, metavar="N", help="NATS port; 0 means any free one.")
@click.option("--memory", is_flag=True, help="Keep nothing on disk: all is gone at the end.")
@click.option(
    "--sandbox",
    metavar="NAME",
    help="For templates that name none: auto (the default), bubblewrap, netns, landlock, seatbelt, opensandbox, none.",
)
@click.option(
    "--listen",
    metavar="ADDR[:PORT]",
    help="Listen for other machines, too: an address, a host name, 0.0.0.0 or ::. Needs TLS.",
)
@click.option(
    "--gateway-listen",
    metavar="ADDR[:PORT]",
    help="Let sandboxes on other machines reach the gateway there. Needs TLS.",
)
@click.option("--tls-cert", type=FILE, metavar="FILE", help="Certificate (PEM) of your own.")
@click.option("--tls-key", type=FILE, metavar="FILE", help="Its key.")
@click.option("--tls-ca", type=FILE, metavar="FILE", help="The authority that clients trust.")
@click.option("--detach", "-d", is_flag=True, help="Return when it is ready; it runs on.")
@click.option(
    "--print-unit",
    type=click.Choice((AUTO, *UNITS)),
    is_flag=False,
    flag_value=AUTO,
    default=None,
    help="Print a unit that runs it at boot, and start nothing.",
)
@state_option(org=False, here=True)
def command(detach: bool, print_unit: str | None, **chosen: Any) -> int:
    """Run a post room until Ctrl-C, `postroom down` or SIGTERM.

    A port that is named, here or by a setting, has to be free. Where none is named the usual one is taken
    (HTTP 4280, NATS 4222), or any free one if somebody else has it. With --detach the output goes to
    logs/up.log in the state folder. Options can be kept: see `postroom config`.
    """
    given = {
        name: value for name, value in chosen.items() if value is not None and value is not False
    }
    settings = _settings(given)  # reports errors in the settings
    if print_unit is not None:
        _print_unit(print_unit, given)
        return 0
    if detach:
        _detach(_arguments(given))
        return 0
    from postroom.cli.detach import in_front
    from postroom.control import run

    with in_front(settings.state):
        return run(settings)


def _settings(given: dict[str, Any]) -> Settings:
    from postroom.settings.sources import load

    flags = {
        _FIELDS.get(name, name): str(value) for name, value in given.items() if value is not True
    }
    return load(state_folder(), flags, memory=given.get("memory", False))


def _arguments(given: dict[str, Any]) -> list[str]:
    return [
        f"--{name}" if value is True else f"--{name.replace('_', '-')}={value}"
        for name, value in given.items()
    ]


def _detach(arguments: list[str]) -> None:
    from postroom.cli.detach import start
    from postroom_a2a.text import one_line

    state = state_folder()
    click.echo(f"starting a post room on {state} ...", err=True)
    server = start(state, arguments)
    click.echo(f"post room is up at {server.url} (pid {server.pid})")
    for url in server.listen:
        click.echo(f"  for others: {one_line(url)}")
    for login in server.logins:
        click.echo(f"  log in from there: {one_line(login)}")
    for note in server.notes:
        click.echo(f"note: {one_line(note)}", err=True)


def _print_unit(kind: str, given: dict[str, Any]) -> None:
    import os
    import sys
    from pathlib import Path

    from postroom.cli.unit import unit
    from postroom.settings.options import OPTIONS

    files = {name: Path(value).absolute() for name, value in given.items() if name[:4] == "tls_"}
    chosen = UNITS[sys.platform == "darwin"] if kind == AUTO else kind
    click.echo(unit(chosen, state_folder(), _arguments(given | files)), nl=False)
    for one in OPTIONS:
        if os.environ.get(one.variable):
            click.echo(
                f"note: {one.variable} is set in this shell and not in the unit: "
                f"postroom config set {one.key}",
                err=True,
            )
