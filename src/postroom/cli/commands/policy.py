"""What decides in a person's place, and what lets none but the person decide: `postroom policy`, `autonomy`, `pin`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from postroom.cli.deciding import asked, pin_of, say_answered
from postroom.cli.declaring import Answer, answers, asks, parameter
from postroom.cli.options import connect, pin_file_option, state_option
from postroom.cli.output import print_table
from postroom.client.belonging import refuse_agents
from postroom.errors import Conflict, InvalidInput
from postroom.lines.approvals import POLICY_HEAD, autonomy_lines, policy_rows
from postroom.protocol.autonomy import Autonomy
from postroom.protocol.patterns import added
from postroom.view.words import span
from postroom_a2a.times import parse_time

if TYPE_CHECKING:
    from collections.abc import Callable

    from postroom.client.http import Client
    from postroom.protocol.shapes import Pin as PinStatus
    from postroom.protocol.shapes import Policy

EXAMPLES = """\b
Examples:
  postroom policy @coder
  postroom policy @coder --allow 'Bash(npm test *)'
  postroom policy @coder --remove 'Bash(npm test *)'
"""


@click.command("policy", epilog=EXAMPLES)
@answers(
    "worker @NICK",
    "--allow PATTERN...: Do not ask for this any more, from now on and over restarts.",
    "--remove PATTERN...: Ask for this again.",
    pin_file_option,
)
def command(
    worker: str,
    allow: tuple[str, ...],
    remove: tuple[str, ...],
    pin_file: str | None,
    as_json: bool,
) -> Answer:
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
    rows = policy_rows(found, time.time())
    return found, lambda: print_table(POLICY_HEAD, rows, cut=("FROM", "PATTERN"))


def _adding(client: Client, worker: str, pattern: str) -> Callable[[str], Policy]:
    return lambda known: client.allow_always(worker, pattern, known, channel="cli")


AUTONOMY_EXAMPLES = """\b
Examples:
  postroom autonomy @coder
  postroom autonomy @coder edits
  postroom autonomy @coder all --until-task-ends
"""


@click.command("autonomy", epilog=AUTONOMY_EXAMPLES)
@answers(
    "worker @NICK",
    parameter(
        "autonomy [ask|edits|all]",
        type=click.Choice(["", *(each.value for each in Autonomy)]),
    ),
    "--until-task-ends: For the task that it works on, and then back by itself.",
    pin_file_option,
)
def autonomy(
    worker: str, autonomy: str, until_task_ends: bool, pin_file: str | None, as_json: bool
) -> Answer:
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
    return found, autonomy_lines(found, time.time())


def _current(client: Client, worker: str) -> str:
    task = client.worker(worker).get("task")
    if task is None:
        raise Conflict(f"{worker} works on no task", remedy="leave --until-task-ends out")
    return task["id"]


@click.group("pin")
@state_option()
def pin() -> None:
    """Have every decision in your name demand a PIN.

    The control plane asks for it, whatever program decides; see docs/security.md for what that stops.
    """


@pin.command("set")
@answers()
def set_pin() -> Answer:
    """Set your PIN, or replace it; it is asked for here, and never shown."""
    refuse_agents("pin")
    with connect() as client:
        had = client.pin()["set"]
        new = asked("New PIN", twice=True)
        pin = pin_of().used(lambda known: client.set_pin(new, known))
    return pin, (
        "replaced your PIN" if had else "set your PIN: every decision needs it from now on"
    )


@pin.command("clear")
@answers()
def clear_pin() -> Answer:
    """Remove your PIN; it is asked for once more."""
    refuse_agents("pin")
    with connect() as client:
        before = client.pin()
        pin = pin_of().used(lambda known: client.set_pin("", known)) if before["set"] else before
    return pin, "removed your PIN" if before["set"] else "you have no PIN"


@pin.command("status")
@asks("approvals.pin")
def pin_status(pin: PinStatus) -> None:
    """Say whether you have a PIN."""
    if not pin["set"]:
        click.echo("you have no PIN (postroom pin set)")
    elif pin["paused_until"]:
        left = span(parse_time(pin["paused_until"]) - time.time())
        click.echo(f"you have a PIN; after wrong ones no try is taken for {left}")
    else:
        click.echo(f"you have a PIN; {pin['tries_left']} wrong ones until a pause")
