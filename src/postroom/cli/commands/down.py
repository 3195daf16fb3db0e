"""`postroom down`."""

from __future__ import annotations

import click

from postroom.cli.options import connect, state_option

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
@state_option(org=False)
def command(timeout: float) -> None:
    """End the post room and all its workers, and wait until they are gone.

    Workers that were running start again with the next `postroom up`.
    """
    from postroom.cli.process import Process
    from postroom.errors import RequestTimeout

    with connect() as client:
        pid = client.server.pid
        with Process(pid) as process:  # opened first: afterwards the number could be another's
            client.shutdown()
            if not process.wait(timeout):
                raise RequestTimeout(
                    f"the post room (pid {pid}) has not ended within {timeout:g} s",
                    remedy=f"kill {pid}",
                )
    click.echo(f"post room ended (pid {pid})")
