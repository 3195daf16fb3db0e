"""The theme of the screen: `POSTROOM_THEME`, else the one that the person chose last from the palette."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from textual.app import App

from postroom.tui.typing.history import person_file

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
