"""What is said of a worker that was just started: its sandbox, where it works, what it has not got."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from postroom.errors import PostroomError
from postroom.protocol.modes import COPY, DIRECT
from postroom.protocol.presence import last_words
from postroom.protocol.template import LEVELS
from postroom_a2a.text import one_line

if TYPE_CHECKING:
    from postroom.protocol.shapes import Worker, Workspace

WAIT = 5.0
"""Seconds to wait for an agent to start or to end."""


def sandbox_text(worker: Worker) -> str:
    """The worker's sandbox; in red unless it is an enforced wall."""
    wall = worker["sandbox"]
    provider, level = one_line(str(wall["provider"])), one_line(str(wall["level"]))
    text = provider if provider == level else f"{provider}: {level}"
    return "sandbox " + (text if level == LEVELS[0] else click.style(text, fg="red", bold=True))


def place(workspace: Workspace) -> str:
    """Where a worker works, such as `on branch postroom/coder of ~/src/app`; in red if it is the folder itself."""
    path, branch = one_line(workspace["path"]), one_line(workspace["branch"])
    if workspace["mode"] == DIRECT:
        return click.style(f"in {path} itself", fg="red", bold=True)
    copied = "on a copy" if workspace["mode"] == COPY else ""
    if not branch:
        return f"{copied or 'on a branch'} of {path}"
    return f"{copied}{', ' if copied else ''}on branch {branch} of {path}"


def spawned(worker: Worker) -> str:
    """Who was started, where, behind which wall."""
    project = f" in #{one_line(worker['project'])}" if worker["project"] else ""
    return f"spawned @{one_line(worker['nick'])}{project}, {sandbox_text(worker)}"


def notes(worker: Worker) -> list[str]:
    """Where it works, what it has not got, and whether it is still starting."""
    said: list[str] = []
    if workspace := worker.get("workspace"):
        said.append(f"it works {place(workspace)}")
        said += [f"note: {one_line(note, 300)}" for note in workspace.get("notes", [])]
    said += [
        f"not enforced on this machine: compute.{one_line(limit)}"
        for limit in worker.get("unenforced", [])
    ]
    if worker.get("started", True) is None:
        said.append(f"@{one_line(worker['nick'])} is still starting: postroom status")
    return said


def ended(worker: Worker) -> PostroomError | None:
    """The error of an agent that has ended at once, with its last words as details; None for one that has not."""
    if worker.get("started", True) is not False:
        return None
    nick = one_line(worker["nick"])
    return PostroomError(
        f"@{nick} ended at once: {one_line(worker['detail'])}",
        remedy=f"postroom logs {nick} has more; when it is mended: postroom restart {nick}",
        details=tuple(last_words(worker.get("stderr", []))),
    )
