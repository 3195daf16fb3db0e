"""What decides in a person's place, and what lets none but the person decide: `postroom policy`, `autonomy`, `pin`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from postroom.cli.completion import agents
from postroom.cli.deciding import asked, pin_of, say_answered
from postroom.cli.options import connect, json_option, pin_file_option, state_option
from postroom.cli.output import print_json, print_table
from postroom.client.belonging import refuse_agents
from postroom.errors import Conflict, InvalidInput
from postroom.lines.words import span
from postroom.protocol.autonomy import Autonomy
from postroom.protocol.patterns import added
from postroom.view.approvals import POLICY_HEAD, autonomy_lines, policy_rows
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


AUTONOMY_EXAMPLES = """\b
Examples:
  postroom autonomy @coder
  postroom autonomy @coder edits
  postroom autonomy @coder all --until-task-ends
"""


@click.command("autonomy", epilog=AUTONOMY_EXAMPLES)
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
def autonomy(
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


@click.group("pin")
@state_option()
def pin() -> None:
    """Have every decision in your name demand a PIN.

    The control plane asks for it, whatever program decides; see docs/security.md for what that stops.
    """


@pin.command("set")
@json_option
@state_option()
def set_pin(as_json: bool) -> None:
    """Set your PIN, or replace it; it is asked for here, and never shown."""
    refuse_agents("pin")
    with connect() as client:
        had = client.pin()["set"]
        new = asked("New PIN", twice=True)
        pin = pin_of().used(lambda known: client.set_pin(new, known))
    _said(
        pin,
        "replaced your PIN" if had else "set your PIN: every decision needs it from now on",
        as_json=as_json,
    )


@pin.command("clear")
@json_option
@state_option()
def clear_pin(as_json: bool) -> None:
    """Remove your PIN; it is asked for once more."""
    refuse_agents("pin")
    with connect() as client:
        before = client.pin()
        pin = pin_of().used(lambda known: client.set_pin("", known)) if before["set"] else before
    _said(pin, "removed your PIN" if before["set"] else "you have no PIN", as_json=as_json)


def _said(pin: PinStatus, line: str, *, as_json: bool) -> None:
    if as_json:
        print_json(pin)
    else:
        click.echo(line)


@pin.command("status")
@json_option
@state_option()
def pin_status(as_json: bool) -> None:
    """Say whether you have a PIN."""
    with connect() as client:
        pin = client.pin()
    if as_json:
        print_json(pin)
    elif not pin["set"]:
        click.echo("you have no PIN (postroom pin set)")
    elif pin["paused_until"]:
        left = span(parse_time(pin["paused_until"]) - time.time())
        click.echo(f"you have a PIN; after wrong ones no try is taken for {left}")
    else:
        click.echo(f"you have a PIN; {pin['tries_left']} wrong ones until a pause")
