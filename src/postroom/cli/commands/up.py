"""`postroom up`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from postroom.cli.options import state_folder, state_option

if TYPE_CHECKING:
    from postroom.settings import Settings

PORT = click.IntRange(0, 65535)


@click.command("up")
@click.option("--port", type=PORT, metavar="N", help="HTTP port; 0 means any free one.")
@click.option("--nats-port", type=PORT, metavar="N", help="NATS port; 0 means any free one.")
@click.option("--memory", is_flag=True, help="Keep nothing on disk: all is gone at the end.")
@click.option(
    "--sandbox",
    metavar="NAME",
    help="For templates that name none: auto (the default), bubblewrap, netns, landlock, seatbelt or none.",
)
@click.option("--detach", "-d", is_flag=True, help="Return when it is ready; it runs on.")
@state_option(org=False)
def command(
    port: int | None, nats_port: int | None, memory: bool, sandbox: str | None, detach: bool
) -> int:
    """Run a post room until Ctrl-C, `postroom down` or SIGTERM.

    Without a port the usual one is taken, or any free one if somebody else has it. With --detach the
    output goes to logs/up.log in the state folder.
    """
    if detach:
        _detach(_arguments(port, nats_port, memory, sandbox))
        return 0
    settings = _settings(port, nats_port, memory, sandbox)
    from postroom.cli.detach import in_front
    from postroom.control import run

    with in_front(settings.state):
        return run(settings)


def _settings(
    port: int | None, nats_port: int | None, memory: bool, sandbox: str | None
) -> Settings:
    from postroom.settings import Settings

    settings = Settings(state=state_folder(), memory=memory)
    if port is not None:
        settings = replace(settings, http_port=port)
    if nats_port is not None:
        settings = replace(settings, nats_port=nats_port)
    if sandbox is not None:
        settings = replace(settings, sandbox=sandbox)
    return settings


def _arguments(
    port: int | None, nats_port: int | None, memory: bool, sandbox: str | None
) -> list[str]:
    options = {"--port": port, "--nats-port": nats_port, "--sandbox": sandbox}
    given = [f"{name}={value}" for name, value in options.items() if value is not None]
    return [*given, *(["--memory"] if memory else [])]


def _detach(arguments: list[str]) -> None:
    from postroom.cli.detach import start

    state = state_folder()
    click.echo(f"starting a post room on {state} ...", err=True)
    server = start(state, arguments)
    click.echo(f"post room is up at {server.url} (pid {server.pid})")
