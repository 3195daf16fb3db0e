"""The full-screen terminal from the command line: when it opens, on what, and what stands in its place.

Textual is imported when the screen opens and by nothing else.
"""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

import click

from postroom.cli.options import chosen_login, connect, screen_refused, state_folder, without_mouse
from postroom.errors import NotRunning, exit_code

if TYPE_CHECKING:
    from pathlib import Path

    from postroom.client.http import Client
    from postroom.tui.news import Target

EXTRA = "textual"
"""What the extra `tui` brings."""

HOW = "there is a screen for this terminal, too: pip install 'postroom[tui]'"

FIRST = """\
This is Postroom. Agents and people have addresses here; they send each other
messages and tasks, and you see and answer all that needs you. No post room is
set up yet. Three commands to begin with:

  postroom up --detach          start it
  postroom doctor claude-code   what a coding agent needs on this machine
  postroom                      the screen: who needs you, and who does what

`make demo` in a checkout shows it with two workers; postroom --help has more."""


def wanted() -> bool:
    """Whether a screen opens here: at a terminal that can show it, with the extra, and not refused."""
    return in_terminal() and not screen_refused() and installed()


def in_terminal() -> bool:
    """Whether input and output are a terminal that can show more than lines."""
    streams = (sys.stdin, sys.stdout, sys.stderr)  # the screen is drawn on the last
    able = os.environ.get("TERM", "dumb") != "dumb"
    return able and all(stream is not None and stream.isatty() for stream in streams)


def installed() -> bool:
    """Whether the extra is there, without importing it."""
    return find_spec(EXTRA) is not None


def typed(*names: str) -> bool:
    """Whether one of these options of the running command was given: those of the line mode keep it."""
    ctx = click.get_current_context()
    default = (click.core.ParameterSource.DEFAULT, click.core.ParameterSource.DEFAULT_MAP)
    return any(ctx.get_parameter_source(name) not in default for name in names)


def open_screen(start: str = "", *, needs: bool = False, new: bool = False) -> int:
    """Open the screen until the person leaves; returns the exit status.

    Args:
        start: `#project` or `@nick` that is shown first, "" for what the screen chooses.
        needs: open what waits for the person at once.
        new: the project need not exist yet.

    Raises:
        NotRunning: there is no post room.
        NotFound: `start` is nobody, or a project that nobody has.
    """
    with connect() as client:
        target = _target(client, start, new=new)
        from postroom.tui.running import run

        mouse, notify = not without_mouse(), _notify()
        return run(client, start=target, needs=needs, mouse=mouse, notify=notify)


def open_alone() -> int:
    """What `postroom` without a command does; returns the exit status.

    Raises:
        click.UsageError: the help is wanted, as there is no screen to open.
        NotRunning: no post room runs; one was set up before.
    """
    if not wanted():
        ctx = click.get_current_context()
        click.echo(ctx.get_help(), err=True, color=ctx.color)
        if in_terminal() and not screen_refused():
            click.echo(f"\n{HOW}", err=True)
        return 2
    try:
        return open_screen()
    except NotRunning as error:
        if chosen_login() is not None:
            raise
        state = state_folder()
        if not _set_up(state):
            click.echo(FIRST, err=True)
            return exit_code(error)
        from postroom.client.locate import command

        raise NotRunning(error.message, remedy=command(state, "up --detach")) from error


def _notify() -> str:
    """How the person is called back to the screen; an error of a file of settings is told before it opens."""
    from postroom.settings.sources import of_person

    return of_person("screen.notify", state_folder() if chosen_login() is None else None)


def _set_up(state: Path) -> bool:
    """Whether a post room has run on that folder."""
    return (state / "keys").exists()


def _target(client: Client, start: str, *, new: bool) -> Target | None:
    """What the screen shows first; an error of it is told before the screen opens."""
    from postroom.tui.news import Target

    if not start:
        client.status()  # it answers, and takes our key
        return None
    if start.startswith("#"):
        from postroom.cli.arguments import check_project

        check_project(client, start, new=new)
        return Target(start.removeprefix("#"))
    agent = client.agent(start)
    return Target(agent["nick"], agent["uid"])
