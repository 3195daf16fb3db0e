"""`postroom approvals`, `approve` and `deny`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from postroom.cli.completion import agents, approvals
from postroom.cli.deciding import Input, decide, edited
from postroom.cli.options import connect, json_option, pin_file_option, screen_options, state_option
from postroom.cli.output import print_json, print_table, terminal_width
from postroom.errors import InvalidInput
from postroom.lines.inputs import read_input
from postroom.protocol.approvals import check_editable
from postroom.protocol.limits import MAX_PAGE
from postroom.view.approvals import HISTORY_HEAD, PENDING_HEAD, details, history_rows, pending_row
from postroom.view.needs import in_order

if TYPE_CHECKING:
    from postroom.protocol.shapes import Approval

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


APPROVE_EXAMPLES = """\b
Examples:
  postroom approve 7b1c
  postroom approve 7b1c --edit
  postroom approve 7b1c --always
  postroom approve 7b1c --always 'Bash(make *)'
  postroom approve 7b1c --input '{"command": "make deploy --dry-run"}'
"""


@click.command("approve", epilog=APPROVE_EXAMPLES)
@click.argument("refs", metavar="ID...", nargs=-1, required=True, shell_complete=approvals)
@click.option(
    "--edit",
    is_flag=True,
    help="Change the command or the file's text in your editor (EDITOR) first.",
)
@click.option("--input", "given", metavar="JSON", help="Allow this input in place of the agent's.")
@click.option(
    "--always",
    is_flag=False,
    flag_value="",
    metavar="[PATTERN]",
    help="Nor ask for such a thing again: for PATTERN, else for this very command.",
)
@click.option("--reason", metavar="TEXT", default="", help="Why; to a question it is the answer.")
@click.option(
    "--worker", metavar="@NICK", default="", shell_complete=agents, help="Of this worker."
)
@pin_file_option
@json_option
@state_option()
def approve(
    refs: tuple[str, ...],
    edit: bool,
    given: str | None,
    always: str | None,
    reason: str,
    worker: str,
    pin_file: str | None,
    as_json: bool,
) -> None:
    """Allow what an agent asks; it is shown before.

    An ID may be cut short to 4 digits or more, as long as no other one begins so.
    """
    if (edit or given is not None) and len(refs) > 1:
        raise InvalidInput("an edited input is for one approval", remedy="give one ID")
    if edit and given is not None:
        raise InvalidInput("--edit and --input give two inputs", remedy="leave one of them out")
    if always is not None and (len(refs) > 1 or edit or given is not None):
        raise InvalidInput(
            "--always is for one approval, as the agent asks it", remedy="give one ID, and no input"
        )
    chosen: Input = edited if edit else lambda _: None
    if given is not None:
        value = read_input(given)

        def chosen(approval: Approval) -> dict[str, object]:
            check_editable(approval)
            return value

    decide(
        "approve",
        refs,
        "allowed",
        worker=worker,
        reason=reason,
        given=chosen,
        always=always,
        pin_file=pin_file,
        as_json=as_json,
    )


@click.command("deny")
@click.argument("refs", metavar="ID...", nargs=-1, required=True, shell_complete=approvals)
@click.option("--reason", metavar="TEXT", default="", help="Why; the agent reads it.")
@click.option(
    "--worker", metavar="@NICK", default="", shell_complete=agents, help="Of this worker."
)
@pin_file_option
@json_option
@state_option()
def deny(
    refs: tuple[str, ...], reason: str, worker: str, pin_file: str | None, as_json: bool
) -> None:
    """Refuse what an agent asks; it is shown before.

    An ID may be cut short to 4 digits or more, as long as no other one begins so.
    """
    decide("deny", refs, "denied", worker=worker, reason=reason, pin_file=pin_file, as_json=as_json)
