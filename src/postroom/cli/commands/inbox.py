"""`postroom inbox`."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import click

from postroom.cli.options import connect, json_option, state_option
from postroom.cli.output import address, block, clock, print_json
from postroom.cli.tasks.lines import short
from postroom.protocol.limits import MAX_PAGE

if TYPE_CHECKING:
    from postroom.client.records import Mail

UNREAD = ("accepted", "delivered")


@click.command("inbox")
@click.option("--all", "everything", is_flag=True, help="Also what you have read already.")
@click.option("--peek", is_flag=True, help="Leave unread what is shown.")
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
def command(everything: bool, peek: bool, limit: int, as_json: bool) -> None:
    """Show the messages to you, oldest first.

    What is shown counts as seen, and its senders learn that; with --peek or --json it does not.
    """
    with connect() as client:
        mails = client.inbox(unread=not everything, limit=limit)
        if as_json:
            print_json({"messages": mails})
            return
        _print(mails)
        sys.stdout.flush()  # `seen` is said after they were shown
        for mail in mails:
            if mail["state"] in UNREAD and not peek:
                client.mark_seen(mail["id"])


def _print(mails: list[Mail]) -> None:
    now = time.time()
    for mail in mails:
        when = click.style(clock(mail["sent_at"], now), dim=True)
        unread = mail["state"] in UNREAD
        sender = click.style(address(mail["from"]), bold=unread or None)
        asks = mail["expects_reply"] and mail["state"] != "answered"
        note = click.style("  (expects a reply)", fg="yellow") if asks else ""
        click.echo(f"{when} {sender} {click.style(short(mail['id']), dim=True)}{note}")
        click.echo(block("    | ", mail["text"]))
    if not mails:
        click.echo("no messages")
