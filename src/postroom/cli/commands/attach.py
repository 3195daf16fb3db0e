"""`postroom attach`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from postroom.cli.declaring import answers, number_option, parameter
from postroom.cli.options import connect
from postroom.protocol.limits import MAX_PAGE
from postroom_a2a.text import one_line

if TYPE_CHECKING:
    from postroom.client.http import Client

EXAMPLES = """\b
Examples:
  postroom attach @coder
  postroom attach @coder --from 0 > all.txt
  postroom attach --raw @coder
"""


@click.command("attach", epilog=EXAMPLES)
@answers(
    "ref @NICK",
    parameter(
        "--from start ID: Begin behind the event with this id; 0 for all events.",
        type=click.IntRange(0),
    ),
    number_option(
        "--history N: Without --from: begin with the last turn, N events at most.",
        click.IntRange(0, MAX_PAGE),
        200,
    ),
    "--raw: Open a terminal in the worker's sandbox.",
    screen=True,
)
def command(ref: str, start: int | None, history: int, raw: bool, as_json: bool) -> int:
    """Show what the agent of the worker @NICK does, as it does it: text, tools, changes, usage.

    In a terminal the screen opens there, unless --no-tui or an option for lines is given. With --no-tui each line
    that you type goes to the worker as a message; what the agent asks is answered by `y`,
    `n REASON` or `e` (edit), and `/interrupt` ends its turn. Leave with Ctrl-D or Ctrl-C: the worker goes on. In a
    pipe nothing is read. With --json each event is one line of JSON.

    With --raw you get a shell in the worker's sandbox, with the exit status of that shell.
    """
    if raw:
        if as_json or start is not None:
            raise click.UsageError("--raw shows no events: leave --json and --from out")
        from postroom.cli.chat.raw import run_raw

        with connect() as client:
            return run_raw(client, ref)
    from postroom.cli.screen import open_screen, wanted
    from postroom.cli.screen import typed as chosen

    if wanted() and not as_json and not chosen("start", "history"):
        return open_screen(f"@{ref.removeprefix('@')}")
    typed = sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty() and not as_json
    edited = typed and os.environ.get("TERM", "dumb") != "dumb"
    with connect() as client:
        _attach(client, ref, start, history, as_json=as_json, typed=typed, edited=edited)
    return 0


def _attach(
    client: Client,
    ref: str,
    start: int | None,
    history: int,
    *,
    as_json: bool,
    typed: bool,
    edited: bool,
) -> None:
    from postroom.cli.chat.attached import Session, View
    from postroom.cli.following import say_away

    worker = client.worker(ref)
    uid = worker["uid"]
    view = View(worker, as_json=as_json)
    prompt = None
    if edited:
        from postroom.cli.prompt import Prompt

        prompt = Prompt(f"@{one_line(worker['nick'], 20)}> ")
    session = Session(
        client,
        worker,
        view,
        lambda after: client.events(uid, after_id=after, for_ever=True, away=say_away),
        descriptor=sys.stdin.fileno() if typed else -1,
        prompt=prompt,
    )
    view.begin()
    try:
        if start is not None:
            session.run(_all(client, uid, start), start)
        else:
            session.run(*_last(client, uid, history))
    except KeyboardInterrupt:
        if not typed:
            raise
        if not edited:
            click.echo()  # the terminal shows ^C; leaving so is normal


def _all(client: Client, uid: str, after: int) -> Iterator[Any]:
    """All events past an id, page by page."""
    while page := client.past_events(uid, after_id=after, limit=MAX_PAGE):
        yield from page
        after = page[-1]["id"]


def _last(client: Client, uid: str, most: int) -> tuple[Iterator[Any], int]:
    """The events of the last turn, at most so many, and the id of the last one; without a turn the last events."""
    found = client.newest_events(uid, limit=max(1, most))  # at least one, to know the id
    turns = [event.get("turn") for event in found]
    last = next((turn for turn in reversed(turns) if turn), None)
    first = turns.index(last) if last else 0
    return iter(found[first:] if most else []), found[-1]["id"] if found else 0
