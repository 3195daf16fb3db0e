"""`postroom approvals`, `approve` and `deny`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from postroom.cli.completion import approvals
from postroom.cli.deciding import Input, decide, edited
from postroom.cli.declaring import Answer, answers, number_option, parameter
from postroom.cli.options import connect, pin_file_option
from postroom.cli.output import print_table, terminal_width
from postroom.errors import InvalidInput
from postroom.lines.approvals import HISTORY_HEAD, PENDING_HEAD, details, history_rows, pending_row
from postroom.lines.inputs import read_input
from postroom.protocol.approvals import check_editable
from postroom.protocol.limits import MAX_PAGE
from postroom.view.needs import in_order

if TYPE_CHECKING:
    from postroom.protocol.shapes import Approval

_WORKER = "--worker @NICK: Of this worker."

EXAMPLES = """\b
Examples:
  postroom approvals
  postroom approvals 7b1c
  postroom approvals --history --worker @coder
"""


@click.command("approvals", epilog=EXAMPLES)
@answers(
    click.argument("ref", metavar="[ID]", default="", shell_complete=approvals),
    "--history: Also those that are settled: who decided what.",
    _WORKER,
    number_option("-n --limit: The most approvals.", click.IntRange(1, MAX_PAGE), 50),
    screen=True,
)
def command(ref: str, history: bool, worker: str, limit: int, as_json: bool) -> Answer:
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
            return one, details(one, now, terminal_width())
        state = "all" if history else "pending"
        # Of what waits the first counts, and the newest are what the post room has first.
        most = limit if history else MAX_PAGE
        found = client.approvals(state=state, worker=worker, limit=most)
        found = found if history else in_order(found, now)[:limit]
    return {"approvals": found}, lambda: _table(found, now, history=history)


def _table(found: list[Approval], now: float, *, history: bool) -> None:
    if history:
        rows = [each for approval in found for each in history_rows(approval, now)]
        print_table(HISTORY_HEAD, rows, cut=("WHAT", "WORKER"), empty="no approvals")
        return
    rows = [pending_row(approval, now) for approval in found]
    nothing = "nothing waits for your approval"
    print_table(PENDING_HEAD, rows, cut=("WHAT", "TOOL", "WORKER"), empty=nothing)


APPROVE_EXAMPLES = """\b
Examples:
  postroom approve 7b1c
  postroom approve 7b1c --edit
  postroom approve 7b1c --always
  postroom approve 7b1c --always 'Bash(make *)'
  postroom approve 7b1c --input '{"command": "make deploy --dry-run"}'
"""


_refs = click.argument("refs", metavar="ID...", nargs=-1, required=True, shell_complete=approvals)


@click.command("approve", epilog=APPROVE_EXAMPLES)
@answers(
    _refs,
    "--edit: Change the command or the file's text in your editor (EDITOR) first.",
    parameter("--input given JSON: Allow this input in place of the agent's.", default=None),
    parameter(
        "--always [PATTERN]: Nor ask for such a thing again: for PATTERN, else for this very command.",
        is_flag=False,
        flag_value="",
    ),
    "--reason TEXT: Why; to a question it is the answer.",
    _WORKER,
    pin_file_option,
)
def approve(
    refs: tuple[str, ...],
    edit: bool,
    given: str | None,
    always: str | None,
    as_json: bool,
    **how: Any,
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

    decide("approve", refs, "allowed", given=chosen, always=always, as_json=as_json, **how)


@click.command("deny")
@answers(_refs, "--reason TEXT: Why; the agent reads it.", _WORKER, pin_file_option)
def deny(refs: tuple[str, ...], as_json: bool, **how: Any) -> None:
    """Refuse what an agent asks; it is shown before.

    An ID may be cut short to 4 digits or more, as long as no other one begins so.
    """
    decide("deny", refs, "denied", as_json=as_json, **how)
