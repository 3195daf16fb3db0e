"""`postroom policy`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from postroom.cli.approvals.deciding import pin_file_option, pin_of, say_answered
from postroom.cli.completion import agents
from postroom.cli.options import connect, json_option, state_option
from postroom.cli.output import print_json, print_table
from postroom.client.belonging import refuse_agents
from postroom.protocol.patterns import added
from postroom.view.approvals import POLICY_HEAD, policy_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from postroom.client.http import Client
    from postroom.protocol.shapes import Policy

EXAMPLES = """\b
Examples:
  postroom policy @coder
  postroom policy @coder --allow 'Bash(npm test *)'
  postroom policy @coder --remove 'Bash(npm test *)'
"""


@click.command("policy", epilog=EXAMPLES)
@click.argument("worker", metavar="@NICK", shell_complete=agents)
@click.option(
    "--allow",
    multiple=True,
    metavar="PATTERN",
    help="Do not ask for this any more, from now on and over restarts.",
)
@click.option("--remove", multiple=True, metavar="PATTERN", help="Ask for this again.")
@pin_file_option
@json_option
@state_option()
def command(
    worker: str,
    allow: tuple[str, ...],
    remove: tuple[str, ...],
    pin_file: str | None,
    as_json: bool,
) -> None:
    """Show what the agent of a worker may do without asking you, in the order in which it counts; or change it.

    What its template says stands in the template. What is added here the post room keeps for this one worker, whatever
    its template becomes; it never allows what the template denies.
    """
    if allow or remove:
        refuse_agents("policy")
    patterns = [added(pattern) for pattern in allow]
    with connect() as client:
        pin = pin_of(pin_file)
        for pattern in remove:  # what is removed goes first
            pin.used(lambda known, pattern=pattern: client.forget_rule(worker, pattern, known))
        changed = [pin.used(_adding(client, worker, pattern)) for pattern in patterns]
        found = client.policy(worker)
        answered = [ref for each in changed for ref in each.get("answered", ())]
        if answered and as_json:
            found["answered"] = answered
        elif answered:
            say_answered(client, found | {"answered": answered})
    if as_json:
        print_json(found)
    else:
        print_table(POLICY_HEAD, policy_rows(found, time.time()), cut=("FROM", "PATTERN"))


def _adding(client: Client, worker: str, pattern: str) -> Callable[[str], Policy]:
    return lambda known: client.allow_always(worker, pattern, known, channel="cli")
