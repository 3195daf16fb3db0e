"""`postroom interrupt`."""

from __future__ import annotations

import click

from postroom.cli.completion import agents
from postroom.cli.options import connect, json_option, state_option
from postroom.cli.output import print_json
from postroom.lines.words import address


@click.command("interrupt")
@click.argument("worker", metavar="@NICK", shell_complete=agents)
@click.option("--reason", metavar="TEXT", default="", help="Why; it is in the history.")
@json_option
@state_option()
def command(worker: str, reason: str, as_json: bool) -> None:
    """End the turn of the worker's agent; what it has done stays, and its next turn goes on in the same session."""
    with connect() as client:
        sent = client.interrupt(worker, reason=reason, channel="cli")
    if as_json:
        print_json(sent)
    else:
        # Whether it is in a turn only its sidecar knows.
        click.echo(f"{address(sent['worker'])} is told to end its turn, if it is in one")
