"""`postroom status`."""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from postroom.cli.declaring import answers
from postroom.cli.options import chosen_login, connect
from postroom.cli.output import print_json, terminal_width
from postroom.errors import EnvironmentFault, PeerError, PostroomError

if TYPE_CHECKING:
    from postroom.client.http import Client
    from postroom.protocol.shapes import Status


@click.command("status")
@answers(
    "--wide: Also sandboxes, projects, counts, and when each was seen.",
    "--running: Without the workers that are stopped.",
    "--watch: Show it anew whenever something happens.",
)
def command(wide: bool, running: bool, watch: bool, as_json: bool) -> None:
    """Show what needs you, then each worker: what it is at, for how long, and what it said last.

    The exit status is 3 if no post room is running. With --watch it goes on until Ctrl-C, also while the post room is
    down; in a pipe each picture is printed behind the one before.
    """
    login = chosen_login()
    reached = login.url if login is not None else ""
    with connect() as client:
        from postroom.cli.status_lines import status_lines
        from postroom.view.workers import rests

        def asked() -> tuple[Status, int]:
            """What is to be shown, and how many workers are left out."""
            status = client.status()
            found = status["workers"]
            if running:
                status["workers"] = [each for each in found if not rests(each)]
            return status, len(found) - len(status["workers"])

        def picture() -> list[str]:
            status, rest = asked()
            if as_json:
                return [json.dumps(status, ensure_ascii=True)]  # a line each
            width = terminal_width()
            return status_lines(
                status, time.time(), width=width, wide=wide, reached=reached, rest=rest
            )

        if watch:
            redraw(client, picture)
        elif as_json:
            print_json(asked()[0])
        else:
            click.echo("\n".join(picture()))


PAUSE = 0.5
"""Seconds between two pictures: nobody can read more of them, and each makes the post room examine every worker."""

AGEING = 5.0
"""Seconds after which a terminal gets a new picture without an event, since the picture shows durations."""

HOME, CLEAR_LINE, CLEAR_REST = "\x1b[H", "\x1b[K", "\x1b[J"


class Occasions:
    """Follows all events in a thread of its own."""

    def __init__(self, client: Client) -> None:
        self._happened = threading.Event()
        self._failure: PostroomError | None = None
        self.away = False
        self._stream = client.follow_everything(away=self._set_away)
        threading.Thread(target=self._run, name="occasions", daemon=True).start()

    def wait(self, seconds: float | None) -> None:
        """Return after an event, or after so many seconds.

        Raises:
            PostroomError: the post room lets nobody follow.
        """
        self._happened.wait(seconds)
        self._happened.clear()
        if self._failure is not None:
            raise self._failure

    def _set_away(self, away: bool) -> None:
        self.away = away
        self._happened.set()

    def _run(self) -> None:
        try:
            for _ in self._stream:
                self._happened.set()
        except PostroomError as error:
            self._failure = error
            self._happened.set()


def redraw(client: Client, picture: Callable[[], list[str]]) -> None:
    """Show `picture` now and after each event, until interrupted.

    On a terminal each picture replaces the one before; elsewhere it is printed if it has changed.
    """
    occasions = Occasions(client)
    in_place = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    occasions.wait(PAUSE)  # events before it follows would be missed
    shown: list[str] = []
    while True:
        try:
            lines = picture()
        except (PeerError, EnvironmentFault) as error:
            lines = [f"the post room is away: {error.message}; waiting for it"]
        if in_place:
            _replace(lines)
        elif lines != shown:
            click.echo("\n".join([*([""] if shown else []), *lines]))
        shown = lines
        time.sleep(PAUSE)
        occasions.wait(AGEING if in_place else None)


def _replace(lines: list[str]) -> None:
    height = max(2, shutil.get_terminal_size().lines) - 1
    if len(lines) > height:
        more = len(lines) - height + 1
        lines = [*lines[: height - 1], f"... and {more} lines more"]
    if click.get_current_context().color is False:
        lines = [click.unstyle(line) for line in lines]
    text = "".join(f"{line}{CLEAR_LINE}\n" for line in lines)
    sys.stdout.write(f"{HOME}{text}{CLEAR_REST}")  # at once, so that nothing flickers
    sys.stdout.flush()
