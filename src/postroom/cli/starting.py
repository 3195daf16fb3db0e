"""Reports about a worker that was just started."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from postroom.cli.workspaces import tell
from postroom.errors import PostroomError
from postroom.protocol.presence import last_words
from postroom.protocol.template import LEVELS
from postroom_a2a.text import one_line

if TYPE_CHECKING:
    from postroom.protocol.shapes import Worker

WAIT = 5.0
"""Seconds to wait for an agent to start or to end."""


def sandbox_text(worker: Worker) -> str:
    """The worker's sandbox; in red unless it is an enforced wall."""
    wall = worker["sandbox"]
    provider, level = one_line(str(wall["provider"])), one_line(str(wall["level"]))
    text = provider if provider == level else f"{provider}: {level}"
    return "sandbox " + (text if level == LEVELS[0] else click.style(text, fg="red", bold=True))


def report(worker: Worker) -> None:
    """Report an agent that has not started.

    Raises:
        PostroomError: the agent has ended.
    """
    nick = one_line(worker["nick"])
    tell(worker)
    for limit in worker.get("unenforced", []):
        click.echo(f"not enforced on this machine: compute.{one_line(limit)}", err=True)
    started = worker.get("started", True)
    if started is None:
        click.echo(f"@{nick} is still starting: postroom status", err=True)
    if started is not False:
        return
    for line in last_words(worker.get("stderr", [])):
        click.echo(f"    | {line}", err=True)
    raise PostroomError(
        f"@{nick} ended at once: {one_line(worker['detail'])}",
        remedy=f"postroom logs {nick} has more; when it is mended: postroom restart {nick}",
    )
