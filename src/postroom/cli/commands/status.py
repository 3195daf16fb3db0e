"""`postroom status`."""

from __future__ import annotations

import time

import click

from postroom.cli.options import connect, json_option, state_option
from postroom.cli.output import print_json, terminal_width


@click.command("status")
@click.option(
    "--wide", is_flag=True, help="Also sandboxes, projects, counts, and when each was seen."
)
@json_option
@state_option()
def command(wide: bool, as_json: bool) -> None:
    """Show what needs you, then each worker: what it is at, for how long, and what it said last.

    The exit status is 3 if no post room is running.
    """
    with connect() as client:
        status = client.status()
    if as_json:
        print_json(status)
        return
    from postroom.cli.status import status_lines

    for line in status_lines(status, time.time(), width=terminal_width(), wide=wide):
        click.echo(line)
