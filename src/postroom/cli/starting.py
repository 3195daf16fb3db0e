"""Reports about a worker that was just started."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from postroom.lines.starting import ended, notes

if TYPE_CHECKING:
    from postroom.protocol.shapes import Worker


def report(worker: Worker) -> None:
    """Report where it works, what it has not got, and an agent that has not started.

    Raises:
        PostroomError: the agent has ended.
    """
    for note in notes(worker):
        click.echo(note, err=True)
    error = ended(worker)
    if error is None:
        return
    for line in error.details:
        click.echo(f"    | {line}", err=True)
    raise error
