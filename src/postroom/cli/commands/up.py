"""`postroom up`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from postroom.cli.options import state_folder, state_option

if TYPE_CHECKING:
    from postroom.settings import Settings

PORT = click.IntRange(0, 65535)
FILE = click.Path(dir_okay=False)
_FIELDS = {"port": "http_port"}
"""Options that a setting has another name for."""


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
@state_option(org=False)
def command(detach: bool, **chosen: Any) -> int:
    """Run a post room until Ctrl-C, `postroom down` or SIGTERM.

    Without a port the usual one is taken, or any free one if somebody else has it. With --detach the
    output goes to logs/up.log in the state folder. POSTROOM_TLS=always means TLS on loopback, too.
    """
    given = {
        name: value for name, value in chosen.items() if value is not None and value is not False
    }
    if detach:
        _detach(_arguments(given))
        return 0
    settings = _settings(given)
    from postroom.cli.detach import in_front
    from postroom.control import run

    with in_front(settings.state):
        return run(settings)


def _settings(given: dict[str, Any]) -> Settings:
    from pathlib import Path

    from postroom.settings import Settings

    values = {_FIELDS.get(name, name): value for name, value in given.items()}
    if "listen" in values:
        values["listen"] = (values["listen"],)
    for name in ("tls_cert", "tls_key", "tls_ca"):
        if name in values:
            values[name] = Path(values[name])
    return replace(Settings(state=state_folder()), **values)


def _arguments(given: dict[str, Any]) -> list[str]:
    return [
        f"--{name}" if value is True else f"--{name.replace('_', '-')}={value}"
        for name, value in given.items()
    ]


def _detach(arguments: list[str]) -> None:
    from postroom.cli.detach import start

    state = state_folder()
    click.echo(f"starting a post room on {state} ...", err=True)
    server = start(state, arguments)
    click.echo(f"post room is up at {server.url} (pid {server.pid})")
