"""The lines about the folder that a worker works on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from postroom.lines import workspaces as lines_workspaces
from postroom.lines.rows import Style
from postroom_a2a.text import one_line

if TYPE_CHECKING:
    from postroom.protocol.shapes import Worker, Workspace


def place(workspace: Workspace) -> str:
    """Where a worker works; in red if it is the folder itself."""
    text, style = lines_workspaces.place(workspace)
    return click.style(text, fg="red", bold=True) if style is Style.BAD else text


def tell(worker: Worker) -> None:
    """Say where a worker that was started works, and what it has not got."""
    workspace = worker.get("workspace")
    if not workspace:
        return
    click.echo(f"it works {place(workspace)}", err=True)
    for note in workspace.get("notes", []):
        click.echo(f"note: {one_line(note, 300)}", err=True)


def tell_left(left: Iterable[str]) -> None:
    """Say what could not be brought back."""
    for name in left:
        click.echo(f"not brought back: {one_line(name, 300)}", err=True)
