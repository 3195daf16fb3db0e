"""Reports about a worker that was just started."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from postroom.errors import SandboxUnavailable
from postroom.view.workers import ended, notes
from postroom_a2a.text import one_line

if TYPE_CHECKING:
    from postroom.protocol.shapes import Worker


verbose_option = click.option(
    "--verbose", "-v", is_flag=True, help="Say all that is known of a sandbox that cannot be had."
)


@contextmanager
def details(verbose: bool) -> Generator[None]:
    """With `verbose`, show why there is no sandbox."""
    try:
        yield
    except SandboxUnavailable as error:
        for line in error.details if verbose else ():
            click.echo(one_line(line), err=True)
        raise


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
