"""`postroom receipt`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from postroom.cli.options import connect, json_option, state_option
from postroom.cli.output import print_json
from postroom.cli.waiting import await_milestone, receipt_line, wait_options

if TYPE_CHECKING:
    from postroom.protocol.shapes import Milestone


@click.command("receipt")
@click.argument("message")
@wait_options("Wait until the message has come so far; `answered` prints the answer.")
@json_option
@state_option()
def command(message: str, milestone: Milestone | None, timeout: float, as_json: bool) -> None:
    """Show how far a message has come, or wait for it; MESSAGE is its id, or 4 or more digits of it."""
    with connect() as client, client.transport.within(timeout):
        mail = client.message(message)
        if milestone is not None:
            await_milestone(client, mail, milestone, timeout, as_json=as_json)
        elif as_json:
            print_json(mail)
        else:
            click.echo(receipt_line(mail))
