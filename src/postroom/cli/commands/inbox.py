"""Messages of the person: `postroom inbox`, `feeds`, `threads`, `thread` and `search`."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from postroom.cli.declaring import Answer, answers, asks, limit_option
from postroom.cli.options import connect
from postroom.cli.output import print_json, print_table
from postroom.cli.saving import Saver, force_option, out_option
from postroom.lines.text import Cell, body_lines
from postroom.protocol.limits import MAX_HOW, MAX_UNREAD
from postroom.view.tasks import short
from postroom.view.words import address, ago, clock, expiry, natural, part_lines
from postroom_a2a.text import one_line

if TYPE_CHECKING:
    from postroom.client.http import Client
    from postroom.protocol.shapes import Feed, Mail, Post, Thread

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
    if how := one_line(mail.get("how", ""), MAX_HOW):
        note += click.style(f"  delivered by {how}", dim=True)
    if until := expiry(mail, now):
        note += click.style(f"  {until}", dim=True)
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


@click.group("inbox", invoke_without_command=True)
@answers(
    "--all everything: Also what you have read already.",
    "--archived: Only what you have put away.",
    "--peek: Leave unread what is shown.",
    out_option,
    force_option,
    limit_option(100, "Most messages shown."),
)
def command(
    everything: bool,
    archived: bool,
    peek: bool,
    out: str | None,
    force: bool,
    limit: int,
    as_json: bool,
) -> None:
    """Show the messages to you, oldest first, without those that you have put away.

    What is shown counts as seen, and its senders learn that; with --peek or --json it does not. With --out the files
    and data in them are saved, those of each message in a folder named by its id.
    """
    with connect() as client:
        unread = not (everything or archived)
        mails = client.inbox(unread=unread, archived=archived, limit=limit)
        if not show(client, mails, out=out, force=force, as_json=as_json):
            return
        sys.stdout.flush()  # `seen` is said after they were shown
        for mail in mails:
            if mail["state"] in UNREAD and not peek:
                client.mark_seen(mail["id"])


@command.command("archive", short_help="Put messages away, or take them out again.")
@answers(
    "ids [ID]...",
    "--read: All that you have read.",
    "--back: Take them out again.",
)
def archive(ids: tuple[str, ...], read: bool, back: bool) -> Answer:
    """Put the messages ID away: `inbox` does not show them, `search` and `thread` do. No sender learns it.

    An ID may be cut short to 4 digits or more.
    """
    if bool(ids) == read or (read and back):
        raise click.UsageError("name messages, or say --read")
    with connect() as client:
        whole = [client.message(each)["id"] for each in ids]
        done = client.archive(whole, archived=not back, read=read)
    many = f"{done['count']} message{'s' * (done['count'] != 1)}"
    return done, f"took out {many} again" if back else f"put away {many}"


THREADS = ("LAST", "THREAD", "WITH", "MESSAGES", "UNREAD", "SUBJECT", "TEXT")


@click.command("threads")
@asks("messages.threads", limit_option(50, "Most threads shown."))
def threads(found: list[Thread]) -> None:
    """List your threads, the one with the newest message first."""
    now = time.time()
    rows = [
        [
            Cell(ago(each["at"], now)),
            Cell(one_line(each["id"], 40)),
            Cell(" ".join(map(address, each["parties"]))),
            Cell(str(each["messages"])),
            Cell(str(each["unread"]), bold=each["unread"] > 0),
            Cell(one_line(each["subject"], 80)),
            Cell(f"{address(each['from'])}: {one_line(each['text'], 120)}"),
        ]
        for each in found
    ]
    none = "no threads (postroom send @NICK TEXT --thread ID)"
    print_table(THREADS, rows, cut=("TEXT", "SUBJECT", "WITH", "THREAD"), empty=none)


@click.command("thread")
@answers("thread", limit_option(50, "Most messages shown, the newest."), out_option, force_option)
def thread(thread: str, limit: int, out: str | None, force: bool, as_json: bool) -> None:
    """Show the messages of a thread that you may see, oldest first; nothing counts as seen by it."""
    with connect() as client:
        found = client.search(thread=thread, limit=limit)
        show(client, found[::-1], out=out, force=force, as_json=as_json, to=True)


@click.group("feeds", invoke_without_command=True)
@asks("feeds.unread")
def feeds(found: list[Feed]) -> None:
    """List the feeds of the projects, with how many posts of others you have not read."""
    rows = [
        [Cell(f"#{one_line(each['project'], 64)}"), Cell(_many(each), bold=each["unread"] > 0)]
        for each in sorted(found, key=lambda each: natural(each["project"]))
    ]
    print_table(("FEED", "UNREAD"), rows, empty="no projects")


def _many(feed: Feed) -> str:
    """The number of unread posts, as far as they are counted."""
    return f"{feed['unread']}{'+' if feed['unread'] >= MAX_UNREAD else ''}"


@feeds.command("read", short_help="Note that you have read a feed.")
@answers("project #PROJECT")
def read_feed(project: str) -> Answer:
    """Note that you have read all posts that #PROJECT has now."""
    with connect() as client:
        feed = client.read_feed(project.removeprefix("#"))
    return feed, f"#{one_line(feed['project'], 64)} is read"


EXAMPLES = """\b
Examples:
  postroom search invoice may
  postroom search --thread release-7
  postroom search report --with @helper --out reports
"""


@click.command("search", epilog=EXAMPLES)
@answers(
    "words [WORDS]...",
    "--thread ID: Only of this conversation.",
    "--with other @NICK: Only what that agent has sent or received.",
    limit_option(50, "Most messages shown, the newest."),
    out_option,
    force_option,
)
def search(
    words: tuple[str, ...],
    thread: str,
    other: str,
    limit: int,
    out: str | None,
    force: bool,
    as_json: bool,
) -> None:
    """Find messages that have all WORDS in their text or subject, and posts of projects; show them oldest first.

    Only what you may see is found: what you have sent or received, or with the scope `operate` everything. Posts are
    found by their words alone, so not with `--thread` and `--with`.
    """
    text = " ".join(words)
    with connect() as client:
        found = client.search(text, thread=thread, other=other, limit=limit)
        posts = _posts(client, text, limit) if text and not (thread or other) else []
        show(client, found[::-1], out=out, force=force, as_json=as_json, to=True, posts=posts)


def _posts(client: Client, text: str, limit: int) -> list[Post]:
    """The newest posts of all projects with all words, oldest first."""
    found = [
        post for name in client.projects() for post in client.posts(name, text=text, limit=limit)
    ]
    return sorted(found, key=lambda post: post["at"])[-limit:]
