"""`postroom chat`."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING

import click

from postroom.cli.arguments import check_project, new_option
from postroom.cli.declaring import number_option, parameter, takes
from postroom.cli.options import connect, screen_options, state_option
from postroom.cli.waiting import wait_options
from postroom.protocol.limits import MAX_PAGE
from postroom_a2a.text import one_line

if TYPE_CHECKING:
    from postroom.protocol.shapes import Milestone


@click.command("chat")
@takes(
    "target",
    number_option(
        "--history N: Earlier messages shown at the start.", click.IntRange(0, MAX_PAGE), 20
    ),
    wait_options("At the end of the input, wait until all that was sent has come so far."),
    parameter(
        "--linger S: Go on showing what comes for S seconds after the end of the input.",
        type=click.FloatRange(0, 86400),
        default=0.0,
    ),
    "--posts: Of a project the posts alone, not what happens there.",
    new_option,
    screen_options,
    state_option(),
)
def command(
    target: str,
    history: int,
    milestone: Milestone | None,
    timeout: float,
    linger: float,
    posts: bool,
    new: bool,
) -> int:
    """Talk in '#PROJECT' or with @NICK: what you type is sent line by line, what comes is shown.

    In a terminal the screen opens there, unless --no-tui or an option for lines is given. With --no-tui lines are
    edited, with history, and `/file PATH` sends a file. Leave with Ctrl-D or Ctrl-C. It works in a pipe too: each
    line of the input is sent, and is on disk when the command ends. A message from an agent that is shown counts as
    seen; your next line answers it if it expects a reply.

    Of a project it is also shown who joins, takes a task, asks, ends or fails, and what is to be approved. There
    `/approve ID`, `/deny ID REASON` and `/answer TASK TEXT` answer.
    """
    to_project = target.startswith("#")
    if milestone and to_project:
        raise click.UsageError("a project's feed has no receipts to wait for")
    from postroom.cli.screen import open_screen, typed, wanted

    if wanted() and not typed("history", "milestone", "timeout", "linger", "posts"):
        return open_screen(target, new=new)
    from postroom.cli.chat.conversation import Conversation, Ending, Screen
    from postroom.client.targets import ActivityTarget, AgentTarget, ProjectTarget

    by_person = sys.stdin is not None and sys.stdin.isatty()
    on_screen = sys.stdout.isatty()
    edited = by_person and on_screen and os.environ.get("TERM", "dumb") != "dumb"
    with connect() as client, ExitStack() as stack:
        if to_project:
            check_project(client, target, new=new)
        me = client.status()["me"]
        if to_project:
            other = (ProjectTarget if posts else ActivityTarget)(client.inner, target)
        else:
            other = AgentTarget(client.inner, target)
        screen = Screen(me["uid"], echoed=by_person and on_screen, receipts=on_screen)
        prompt = None
        if edited:
            from postroom.cli.prompt import Prompt

            prompt = stack.enter_context(Prompt(f"{one_line(target, 20)}> "))
        conversation = Conversation(client, other, screen, typed=by_person, prompt=prompt)
        try:
            conversation.run(history, Ending(milestone, timeout, linger))
        except KeyboardInterrupt:
            if not by_person:
                raise
            if not edited:
                click.echo()  # the terminal shows ^C; leaving so is normal
    return 0
