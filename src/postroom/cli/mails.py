"""Messages as people see them in lists. Agents wrote their texts, so all of it is made harmless here."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from postroom.cli.output import print_json
from postroom.cli.saving import Saver
from postroom.lines.parts import body_lines, part_lines
from postroom.lines.words import address, clock
from postroom.view.tasks import short
from postroom_a2a.text import one_line

if TYPE_CHECKING:
    from postroom.client.http import Client
    from postroom.protocol.shapes import Mail, Post

UNREAD = ("accepted", "delivered")
"""States of a message that its recipient has not read."""


def _print(mail: Mail, now: float, *, to: bool) -> None:
    """Print a message; with `to` also its recipient."""
    when = click.style(clock(mail["sent_at"], now), dim=True)
    parties = click.style(address(mail["from"]), bold=(mail["state"] in UNREAD) or None)
    if to:
        parties = f"{parties} to {address(mail['to'])}"
    asks = mail["expects_reply"] and mail["state"] != "answered"
    note = click.style("  (expects a reply)", fg="yellow") if asks and not to else ""
    thread = f"  thread {one_line(mail['thread'], 40)}" if mail["thread"] else ""
    click.echo(f"{when} {parties} {click.style(short(mail['id']) + thread, dim=True)}{note}")
    for line in body_lines(mail):
        click.echo(line)


def show_posts(posts: Sequence[Post]) -> None:
    """Show posts of projects in their order."""
    now = time.time()
    for post in posts:
        when = click.style(clock(post["at"], now), dim=True)
        where = one_line(post["project"], 64)
        click.echo(
            f"{when} {address(post['from'])} to #{where} {click.style(short(post['id']), dim=True)}"
        )
        for line in body_lines(post):
            click.echo(line)


def show(
    client: Client,
    mails: Sequence[Mail],
    *,
    out: str | None,
    force: bool,
    as_json: bool,
    to: bool = False,
    posts: Sequence[Post] = (),
) -> bool:
    """Show messages in their order, and save what is in them where `out` names a folder; False if it was as JSON.

    Args:
        posts: of projects, shown above the messages; of their files nothing is saved.
    """
    if out is not None:
        _save_files(client, mails, out, force=force, quiet=as_json)
    if as_json:
        print_json({"messages": mails} | ({"posts": posts} if posts else {}))
        return False
    show_posts(posts)
    now = time.time()
    for mail in mails:
        _print(mail, now, to=to)
    if not mails and not posts:
        click.echo("no messages")
    if out is None:
        _hint(mails)
    return True


def _save_files(
    client: Client, mails: Sequence[Mail], out: str, *, force: bool, quiet: bool
) -> None:
    """Save the parts of messages that are no texts, those of each message in a folder of its own, and print where.

    Args:
        quiet: print it on standard error alone.

    Raises:
        Conflict: a file is there already, and `force` is not set.
    """
    for mail in mails:
        saver = Saver(client, Path(out) / short(mail["id"]), force=force)
        try:
            saver.save(mail)
        finally:
            saver.tell(quiet=quiet)


def _hint(mails: Sequence[Mail]) -> None:
    """Say on standard error how files are saved, if a message has some."""
    if any(part_lines(mail) for mail in mails):
        click.echo("--out DIR saves the files", err=True)
