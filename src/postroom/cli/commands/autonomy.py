"""`postroom autonomy`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from postroom.cli.approvals.deciding import pin_file_option, pin_of, say_answered
from postroom.cli.completion import agents
from postroom.cli.options import connect, json_option, state_option
from postroom.cli.output import print_json
from postroom.client.belonging import refuse_agents
from postroom.errors import Conflict, InvalidInput
from postroom.protocol.autonomy import Autonomy
from postroom.view.approvals import autonomy_lines

if TYPE_CHECKING:
    from postroom.client.http import Client

EXAMPLES = """\b
Examples:
  postroom autonomy @coder
  postroom autonomy @coder edits
  postroom autonomy @coder all --until-task-ends
"""


@click.command("autonomy", epilog=EXAMPLES)
@click.argument("worker", metavar="@NICK", shell_complete=agents)
@click.argument(
    "autonomy",
    metavar="[ask|edits|all]",
    default="",
    type=click.Choice(["", *(each.value for each in Autonomy)]),
)
@click.option(
    "--until-task-ends",
    is_flag=True,
    help="For the task that it works on, and then back by itself.",
)
@pin_file_option
@json_option
@state_option()
def command(
    worker: str, autonomy: str, until_task_ends: bool, pin_file: str | None, as_json: bool
) -> None:
    """Show or set how much the agent of a worker does without asking you.

    ask: nothing but what rules allow (postroom policy). edits: it also changes files in its folder. all: everything.
    What the template denies stays denied. It counts at once, for what waits too, and over restarts.
    """
    if not autonomy and until_task_ends:
        raise InvalidInput(
            "--until-task-ends is for a change", remedy="ask, edits or all before it"
        )
    if autonomy:
        refuse_agents("autonomy")
    with connect() as client:
        if autonomy:
            task = _current(client, worker) if until_task_ends else ""
            found = pin_of(pin_file).used(
                lambda known: client.set_autonomy(
                    worker, autonomy, task=task, channel="cli", pin=known
                )
            )
            if not as_json:
                say_answered(client, found)
        else:
            found = client.policy(worker)
    if as_json:
        print_json(found)
        return
    for line in autonomy_lines(found, time.time()):
        click.echo(line)


def _current(client: Client, worker: str) -> str:
    task = client.worker(worker).get("task")
    if task is None:
        raise Conflict(f"{worker} works on no task", remedy="leave --until-task-ends out")
    return task["id"]
