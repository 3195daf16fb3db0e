"""Opening the screen and leaving it: what the person reads on the normal terminal afterwards."""

from __future__ import annotations

import os
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

import click

from postroom_a2a.text import one_line

if TYPE_CHECKING:
    from postroom.client.http import Client
    from postroom.tui.here import Here
    from postroom.tui.news import Target

LOG = "screen.log"
"""Name of the file with the details of the last failure."""

FAILED = 1
"""Exit status after a failure of the screen itself."""


def run(
    client: Client,
    *,
    start: Target | None = None,
    needs: bool = False,
    mouse: bool = True,
    notify: str = "off",
    here: Here | None = None,
) -> int:
    """Open the screen until the person leaves; returns the exit status.

    Args:
        client: of the post room; it stays open.
        start: what is shown first.
        needs: open the first dialog at once.
        mouse: let the screen have the mouse; without it the terminal keeps it, to select text.
        notify: how to call a person who looks elsewhere (the setting `screen.notify`).
        here: the post room, where it is one of this machine.
    """
    from postroom.tui import theme
    from postroom.tui.app import PostroomApp
    from postroom.tui.notify import Way
    from postroom.tui.typing.history import History, person_file
    from postroom.tui.worker.review import Review, review_file

    # One of another machine is not ours to end.
    ends = " (postroom down ends it)" if client.server.pid else ""
    history = History(person_file())
    app = PostroomApp(
        client, start=start, needs=needs, history=history, notify=Way(notify), here=here
    )
    app.review = Review(review_file())
    chosen = theme.choose(app, theme.theme_file())
    status = app.run(mouse=mouse) or app.return_code or 0
    if app.theme != chosen:
        theme.keep(app.theme, theme.theme_file())
    if app.failure is not None:
        _tell(app.failure)
        return FAILED
    click.echo(f"postroom: left; everything goes on{ends}")
    return status


def _tell(failure: BaseException) -> None:
    """One line, and the details in a file: nobody wants a traceback all over the terminal."""
    said = one_line(f"{type(failure).__name__}: {failure}", 200)
    click.echo(f"postroom: the screen failed: {said}", err=True)
    file = _write(failure)
    where = f"details are in {file}; " if file else ""
    click.echo(f"  {where}everything goes on; try: postroom --no-tui", err=True)


def _write(failure: BaseException) -> Path | None:
    """Write the details; None where that cannot be."""
    from platformdirs import user_cache_path

    details = "".join(traceback.format_exception(failure))
    try:
        file = user_cache_path("postroom") / LOG
        file.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(file, flags, 0o600), "w", encoding="utf-8") as log:
            log.write(details)
    except (OSError, RuntimeError):
        return None
    return file
