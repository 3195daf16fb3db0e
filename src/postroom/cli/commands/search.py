"""`postroom search`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from postroom.cli.completion import agents
from postroom.cli.mails import show
from postroom.cli.options import connect, json_option, state_option
from postroom.cli.saving import force_option, out_option
from postroom.protocol.limits import MAX_PAGE

if TYPE_CHECKING:
    from postroom.client.http import Client
    from postroom.protocol.shapes import Post

EXAMPLES = """\b
Examples:
  postroom search invoice may
  postroom search --thread release-7
  postroom search report --with @helper --out reports
"""


@click.command("search", epilog=EXAMPLES)
@click.argument("words", nargs=-1)
@click.option("--thread", default="", metavar="ID", help="Only of this conversation.")
@click.option(
    "--with",
    "other",
    default="",
    metavar="@NICK",
    shell_complete=agents,
    help="Only what that agent has sent or received.",
)
@click.option(
    "--limit",
    type=click.IntRange(1, MAX_PAGE),
    default=50,
    show_default=True,
    metavar="N",
    help="Most messages shown, the newest.",
)
@out_option
@force_option
@json_option
@state_option()
def command(
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
