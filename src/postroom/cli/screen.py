"""The full-screen terminal from the command line: when it opens, on what, and what stands in its place.

`postroom` alone starts a post room first, if none runs: at a terminal, and not in continuous integration.

Textual is imported when the screen opens and by nothing else.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from postroom.cli.options import (
    chosen_login,
    connect,
    connect_async,
    screen_refused,
    state_folder,
    without_mouse,
)
from postroom.errors import NotRunning

if TYPE_CHECKING:
    from postroom.client.http import Client
    from postroom.tui.here import Here
    from postroom.tui.news import Target


def wanted() -> bool:
    """Whether a screen opens here: at a terminal that can show it, and not refused."""
    return in_terminal() and not screen_refused()


def in_terminal() -> bool:
    """Whether input and output are a terminal that can show more than lines."""
    return os.environ.get("TERM", "dumb") != "dumb" and has_person()


def has_person() -> bool:
    """Whether input and output are a terminal, of whatever kind."""
    streams = (sys.stdin, sys.stdout, sys.stderr)  # the screen is drawn on the last
    return all(stream is not None and stream.isatty() for stream in streams)


def in_ci() -> bool:
    """Whether this is a run of continuous integration, where nobody would end what is started."""
    return os.environ.get("CI", "").lower() not in {"", "0", "false"}


def typed(*names: str) -> bool:
    """Whether one of these options of the running command was given: those of the line mode keep it."""
    ctx = click.get_current_context()
    default = (click.core.ParameterSource.DEFAULT, click.core.ParameterSource.DEFAULT_MAP)
    return any(ctx.get_parameter_source(name) not in default for name in names)


def open_screen(
    start: str = "", *, needs: bool = False, new: bool = False, alone: bool = False, said: str = ""
) -> int:
    """Open the screen until the person leaves; returns the exit status.

    Args:
        start: `#project` or `@nick` that is shown first, "" for what the screen chooses.
        needs: open what waits for the person at once.
        new: the project need not exist yet.
        alone: `postroom` was typed and nothing else, so a worker is offered where none works yet.
        said: what there is to say as it opens.

    Raises:
        NotRunning: there is no post room.
        NotFound: `start` is nobody, or a project that nobody has.
    """
    with connect() as client:
        target = _target(client, start, new=new)
    from postroom.tui.running import run

    return run(
        connect_async(),
        start=target,
        needs=needs,
        mouse=not without_mouse(),
        notify=_notify(),
        here=_here(alone, said),
    )


def open_alone() -> int:
    """What `postroom` without a command does: it starts a post room if none runs, and opens the screen, or lines.

    Returns the exit status.

    Raises:
        NotRunning: no post room runs, and none is started by itself here.
    """
    lines = screen_refused()
    if not (has_person() if lines else in_terminal()):
        ctx = click.get_current_context()
        click.echo(ctx.get_help(), err=True, color=ctx.color)
        return 2
    said = _started() if chosen_login() is None else ""
    if not lines:
        return open_screen(alone=True, said=said)
    return _in_lines()


def _in_lines() -> int:
    """What stands in the place of the screen: the questions of its first dialog, else the status."""
    if chosen_login() is None:
        from postroom.cli.commands.spawn import spawned

        done = spawned()
        if done is not None:
            return done
    from postroom.cli.commands.status import command as status

    click.get_current_context().invoke(status)
    return 0


def _started() -> str:
    """Start a post room on the chosen folder if none runs; returns what is to be said of it then."""
    from postroom.client.locate import command, locate

    state = state_folder()
    try:
        locate(state)
    except NotRunning as error:
        if in_ci():
            raise NotRunning(error.message, remedy=command(state, "up --detach")) from error
        from postroom.cli.detach import begin, goes_on

        if begin(state):
            return f"the post room was started, {goes_on(state)}"
    return ""


def _here(alone: bool, said: str) -> Here | None:
    """The post room of this machine that commands go to; None where it is one of another machine."""
    if chosen_login() is not None:
        return None
    from postroom.cli.detach import ensure
    from postroom.client.locate import command
    from postroom.tui.here import Here

    state = state_folder()
    return Here(state, lambda: ensure(state), command(state, "up --detach"), said, alone)


def _notify() -> str:
    """How the person is called back to the screen; an error of a file of settings is told before it opens."""
    from postroom.settings.sources import of_person

    return of_person("screen.notify", state_folder() if chosen_login() is None else None)


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
