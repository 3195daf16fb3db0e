"""`postroom deny`."""

from __future__ import annotations

import click

from postroom.cli.approvals.deciding import decide, pin_file_option
from postroom.cli.completion import agents, approvals
from postroom.cli.options import json_option, state_option


@click.command("deny")
@click.argument("refs", metavar="ID...", nargs=-1, required=True, shell_complete=approvals)
@click.option("--reason", metavar="TEXT", default="", help="Why; the agent reads it.")
@click.option(
    "--worker", metavar="@NICK", default="", shell_complete=agents, help="Of this worker."
)
@pin_file_option
@json_option
@state_option()
def command(
    refs: tuple[str, ...], reason: str, worker: str, pin_file: str | None, as_json: bool
) -> None:
    """Refuse what an agent asks; it is shown before.

    An ID may be cut short to 4 digits or more, as long as no other one begins so.
    """
    decide("deny", refs, "denied", worker=worker, reason=reason, pin_file=pin_file, as_json=as_json)
