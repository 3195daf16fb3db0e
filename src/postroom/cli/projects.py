"""A misspelt project is told, and not made."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from postroom.errors import NotFound
from postroom_a2a.text import one_line

if TYPE_CHECKING:
    from postroom.client.http import Client

NAMED = 10
"""Projects that an error names."""

new_option = click.option("--new", is_flag=True, help="Make the project, if there is none.")


def check_project(client: Client, project: str, *, new: bool) -> None:
    """Have the person confirm a project that nobody is in and nothing was posted to.

    Raises:
        NotFound: there is no such project, and nobody wants to make it.
    """
    if new:
        return
    known = client.projects()
    if project.removeprefix("#") in known:
        return
    said = f"there is no project {one_line(project, 70)!r}"
    names = ", ".join(f"#{one_line(name, 64)}" for name in known[:NAMED])
    more = " …" if len(known) > NAMED else ""
    if sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty():
        asked = f"{said} (there is {names}{more}). Make it?"
        if click.confirm(asked[0].upper() + asked[1:], err=True):
            return
    raise NotFound(said, remedy=f"{names}{more}, or --new to make it")
