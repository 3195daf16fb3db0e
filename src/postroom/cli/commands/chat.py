"""`postroom chat`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from postroom.cli.options import connect, state_option
from postroom.cli.waiting import wait_options

if TYPE_CHECKING:
    from postroom.client.records import Milestone


@click.command("chat")
@click.argument("target")
@click.option(
    "--history",
    type=click.IntRange(0, 1000),
    default=20,
    show_default=True,
    metavar="N",
    help="Earlier messages shown at the start.",
)
@wait_options("At the end of the input, wait until all that was sent has come so far.")
@click.option(
    "--linger",
    type=click.FloatRange(0, 86400),
    default=0.0,
    metavar="S",
    help="Go on showing what comes for S seconds after the end of the input.",
)
@state_option()
def command(
    target: str, history: int, milestone: Milestone | None, timeout: float, linger: float
) -> None:
    """Talk in '#PROJECT' or with @NICK: what you type is sent line by line, what comes is shown.

    Leave with Ctrl-D or Ctrl-C. It works in a pipe too: each line of the input is sent, and is on disk
    when the command ends. A message from an agent that is shown counts as seen; your next line answers it
    if it expects a reply.
    """
    to_project = target.startswith("#")
    if milestone and to_project:
        raise click.UsageError("a project's feed has no receipts to wait for")
    from postroom.cli.chat.conversation import Conversation, Ending
    from postroom.cli.chat.screen import Screen
    from postroom.cli.chat.targets import AgentTarget, ProjectTarget

    typed = sys.stdin is not None and sys.stdin.isatty()
    on_screen = sys.stdout.isatty()
    with connect() as client:
        me = client.status()["me"]
        other = (ProjectTarget if to_project else AgentTarget)(client, target)
        screen = Screen(me["uid"], echoed=typed and on_screen, receipts=on_screen)
        conversation = Conversation(client, other, screen, typed=typed)
        try:
            conversation.run(history, Ending(milestone, timeout, linger))
        except KeyboardInterrupt:
            if not typed:
                raise
            click.echo()  # the terminal shows ^C; leaving so is normal
