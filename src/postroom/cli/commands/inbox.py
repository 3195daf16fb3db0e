"""`postroom inbox`."""

from __future__ import annotations

import sys

import click

from postroom.cli.mails import UNREAD, show
from postroom.cli.options import connect, json_option, state_option
from postroom.cli.saving import force_option, out_option
from postroom.protocol.limits import MAX_PAGE


@click.command("inbox")
@click.option("--all", "everything", is_flag=True, help="Also what you have read already.")
@click.option("--peek", is_flag=True, help="Leave unread what is shown.")
@out_option
@force_option
@click.option(
    "--limit",
    type=click.IntRange(1, MAX_PAGE),
    default=100,
    show_default=True,
    metavar="N",
    help="Most messages shown.",
)
@json_option
@state_option()
def command(
    everything: bool, peek: bool, out: str | None, force: bool, limit: int, as_json: bool
) -> None:
    """Show the messages to you, oldest first.

    What is shown counts as seen, and its senders learn that; with --peek or --json it does not. With --out the files
    and data in them are saved, those of each message in a folder named by its id.
    """
    with connect() as client:
        mails = client.inbox(unread=not everything, limit=limit)
        if not show(client, mails, out=out, force=force, as_json=as_json):
            return
        sys.stdout.flush()  # `seen` is said after they were shown
        for mail in mails:
            if mail["state"] in UNREAD and not peek:
                client.mark_seen(mail["id"])
