"""`postroom interrupt`."""

from __future__ import annotations

import click

from postroom.cli.options import connect, json_option, state_option
from postroom.cli.several import each, nicks_argument
from postroom.lines.words import address


@click.command("interrupt")
@nicks_argument
@click.option("--reason", metavar="TEXT", default="", help="Why; it is in the history.")
@json_option
@state_option()
def command(nicks: tuple[str, ...], reason: str, as_json: bool) -> int:
    """End the turn of the agent of each worker NICK.

    What it has done stays, and its next turn goes on in the same session.
    """
    with connect() as client:
        return each(
            nicks,
            lambda nick: client.interrupt(nick, reason=reason, channel="cli"),
            # Whether it is in a turn only its sidecar knows.
            lambda sent: f"{address(sent['worker'])} is told to end its turn, if it is in one",
            as_json=as_json,
        )
