"""`postroom stop`."""

from __future__ import annotations

import click

from postroom.cli.options import connect, json_option, state_option
from postroom.cli.output import print_json
from postroom_a2a.text import one_line


@click.command("stop")
@click.argument("nick")
@json_option
@state_option()
def command(nick: str, as_json: bool) -> None:
    """Stop the worker NICK; its inbox keeps what comes until it is started again."""
    with connect() as client:
        worker = client.stop(nick)
    if as_json:
        print_json(worker)
    else:
        click.echo(f"stopped @{one_line(worker['nick'])}")
