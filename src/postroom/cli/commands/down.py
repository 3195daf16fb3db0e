"""`postroom down`."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from postroom.cli.options import state_folder, state_option

if TYPE_CHECKING:
    from pathlib import Path

    from postroom.client.locate import ServerAddress

DEFAULT_TIMEOUT = 30.0


@click.command("down")
@click.option(
    "--timeout",
    type=click.FloatRange(0.1, 3600),
    default=DEFAULT_TIMEOUT,
    show_default=True,
    metavar="S",
    help="Seconds to wait for its end.",
)
@state_option(org=False, here=True)
def command(timeout: float) -> None:
    """End the post room and all its workers, and wait until they are gone.

    Workers that were running start again with the next `postroom up`. Where none runs the exit status is 3.
    """
    from postroom.cli.detach import Process
    from postroom.client.locate import locate
    from postroom.errors import RequestTimeout

    state = state_folder()
    server = locate(state)
    with Process(
        server.pid
    ) as process:  # opened first: later the number could belong to another process
        _ask(state, server)
        if not process.wait(timeout):
            raise RequestTimeout(
                f"the post room (pid {server.pid}) has not ended within {timeout:g} s",
                remedy=f"kill {server.pid}",
            )
    click.echo(f"post room ended (pid {server.pid})")


def _ask(state: Path, server: ServerAddress) -> None:
    """Ask the post room to end by its API, else by a signal if the lock proves that the process is the post room's."""
    from postroom.client.http import Client
    from postroom.errors import PostroomError

    try:
        with Client.at(state) as client:
            client.shutdown()
    except PostroomError:
        from postroom.client.locate import runs

        if not runs(state):
            raise
        with suppress(ProcessLookupError):
            os.kill(server.pid, signal.SIGTERM)
