"""`postroom approve`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from postroom.cli.approvals.deciding import Input, decide, edited, pin_file_option
from postroom.cli.completion import agents, approvals
from postroom.cli.options import json_option, state_option
from postroom.errors import InvalidInput
from postroom.lines.inputs import read_input
from postroom.protocol.approvals import check_editable

if TYPE_CHECKING:
    from postroom.protocol.shapes import Approval

EXAMPLES = """\b
Examples:
  postroom approve 7b1c
  postroom approve 7b1c --edit
  postroom approve 7b1c --always
  postroom approve 7b1c --always 'Bash(make *)'
  postroom approve 7b1c --input '{"command": "make deploy --dry-run"}'
"""


@click.command("approve", epilog=EXAMPLES)
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
def command(
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
