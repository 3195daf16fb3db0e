"""Opening the screen and leaving it: its theme, and what the person reads on the normal terminal afterwards.

The theme is that of `POSTROOM_THEME`, else the one that the person chose last from the palette.
"""

from __future__ import annotations

import os
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from postroom.tui.app import PostroomApp
from postroom.tui.notify import Way
from postroom.tui.typing.history import History, person_file
from postroom.tui.worker.changes import Review, review_file
from postroom_a2a.text import one_line

if TYPE_CHECKING:
    from textual.app import App

    from postroom.client.http import AsyncClient
    from postroom.tui.here import Here
    from postroom.tui.news import Target

LOG = "screen.log"
"""Name of the file with the details of the last failure."""

FAILED = 1
"""Exit status after a failure of the screen itself."""


def run(
    client: AsyncClient,
    *,
    start: Target | None = None,
    needs: bool = False,
    mouse: bool = True,
    notify: str = "off",
    here: Here | None = None,
) -> int:
    """Open the screen until the person leaves; returns the exit status.

    Args:
        client: of the post room; it is closed in the end.
        start: what is shown first.
        needs: open the first dialog at once.
        mouse: let the screen have the mouse; without it the terminal keeps it, to select text.
        notify: how to call a person who looks elsewhere (the setting `screen.notify`).
        here: the post room, where it is one of this machine.
    """
    # One of another machine is not ours to end.
    ends = " (postroom down ends it)" if client.transport.server.pid else ""
    history = History(person_file())
    app = PostroomApp(
        client, start=start, needs=needs, history=history, notify=Way(notify), here=here
    )
    app.review = Review(review_file())
    chosen = choose(app, theme_file())
    status = app.run(mouse=mouse) or app.return_code or 0
    if app.theme != chosen:
        keep(app.theme, theme_file())
    if app.failure is not None or status == FAILED:
        _tell(app.failure)
        return FAILED
    click.echo(f"postroom: left; everything goes on{ends}")
    return status


def _tell(failure: BaseException | None) -> None:
    """One line, and the details in a file: nobody wants a traceback all over the terminal."""
    said = (
        one_line(f"{type(failure).__name__}: {failure}", 200) if failure else "no details are known"
    )
    click.echo(f"postroom: the screen failed: {said}", err=True)
    file = _write(failure) if failure else None
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


VARIABLE = "POSTROOM_THEME"
FILE = "theme"
LONGEST = 100
"""Characters of a name that are read."""


def theme_file() -> Path | None:
    """Where this user's choice is kept, None without a home folder."""
    file = person_file()
    return None if file is None else file.with_name(FILE)


def choose(app: App[Any], file: Path | None) -> str:
    """Give the screen its theme before it runs; an unknown name changes nothing. Returns the theme's name."""
    name = os.environ.get(VARIABLE) or _read(file)
    if name in app.available_themes:
        app.theme = name
    return app.theme


def keep(name: str, file: Path | None) -> None:
    """Keep a choice; a folder that cannot be written keeps none."""
    if file is None:
        return
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(name + "\n")
    except OSError:
        return


def _read(file: Path | None) -> str:
    if file is None:
        return ""
    try:
        return file.read_text(errors="replace")[:LONGEST].strip()
    except OSError:
        return ""
