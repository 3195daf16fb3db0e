"""`postroom approvals`."""

from __future__ import annotations

import time

import click

from postroom.cli.completion import agents, approvals
from postroom.cli.options import connect, json_option, screen_options, state_option
from postroom.cli.output import print_json, print_table, terminal_width
from postroom.protocol.limits import MAX_PAGE
from postroom.view.approvals import HISTORY_HEAD, PENDING_HEAD, details, history_rows, pending_row
from postroom.view.needs import in_order

EXAMPLES = """\b
Examples:
  postroom approvals
  postroom approvals 7b1c
  postroom approvals --history --worker @coder
"""


@click.command("approvals", epilog=EXAMPLES)
@click.argument("ref", metavar="[ID]", default="", shell_complete=approvals)
@click.option("--history", is_flag=True, help="Also those that are settled: who decided what.")
@click.option(
    "--worker", metavar="@NICK", default="", shell_complete=agents, help="Of this worker."
)
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(1, MAX_PAGE),
    default=50,
    show_default=True,
    help="The most approvals.",
)
@json_option
@screen_options
@state_option()
def command(ref: str, history: bool, worker: str, limit: int, as_json: bool) -> int:
    """Show what agents ask before they act, or the approval ID with all that is to be done.

    An ID may be cut short to 4 digits or more, as long as no other one begins so. `approve` and `deny` answer. In a
    terminal, without an ID or an option, the screen opens on what waits for you, unless --no-tui is given.
    """
    from postroom.cli.screen import open_screen, typed, wanted

    if wanted() and not ref and not as_json and not typed("history", "worker", "limit"):
        return open_screen(needs=True)
    now = time.time()
    with connect() as client:
        if ref:
            one = client.approval(ref, worker=worker)
            if as_json:
                print_json(one)
            else:
                click.echo("\n".join(details(one, now, terminal_width())))
            return 0
        state = "all" if history else "pending"
        # Of what waits the first counts, and the newest are what the post room has first.
        most = limit if history else MAX_PAGE
        found = client.approvals(state=state, worker=worker, limit=most)
        found = found if history else in_order(found, now)[:limit]
    if as_json:
        print_json({"approvals": found})
    elif not found:
        click.echo("no approvals" if history else "nothing waits for your approval")
    elif history:
        rows = [row for approval in found for row in history_rows(approval, now)]
        print_table(HISTORY_HEAD, rows, cut=("WHAT", "WORKER"))
    else:
        rows = [pending_row(approval, now) for approval in found]
        print_table(PENDING_HEAD, rows, cut=("WHAT", "TOOL", "WORKER"))
    return 0
