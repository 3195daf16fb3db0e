"""`postroom restart`."""

from __future__ import annotations

import click

from postroom.cli.options import connect, json_option, state_option
from postroom.cli.output import print_json
from postroom.protocol.text import one_line


@click.command("restart")
@click.argument("nick")
@json_option
@state_option()
def command(nick: str, as_json: bool) -> None:
    """Stop the worker NICK if it runs, and start it."""
    with connect() as client:
        worker = client.restart(nick)
    if as_json:
        print_json(worker)
    else:
        click.echo(f"restarted @{one_line(worker['nick'])}")
