"""Workers as people read of them: their state, how urgent it is, what they said last, what is said of a new one."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import TYPE_CHECKING

import click

from postroom.errors import PostroomError
from postroom.lines.words import clock, natural
from postroom.protocol.modes import COPY, DIRECT
from postroom.protocol.presence import last_words
from postroom.protocol.template import LEVELS
from postroom.view.tasks import is_question
from postroom_a2a.text import one_line

if TYPE_CHECKING:
    from postroom.protocol.shapes import Alert, Approval, Status, Worker, Workspace

NEEDS = frozenset({"approval", "input-required"})
"""Kinds of the alerts about approvals and questions, which are shown among the needs for the person."""

FAILURES = frozenset({"worker-ended", "worker-not-started", "worker-limit", "stalled"})
"""Kinds of the alerts about workers that do not run, or stall."""

FAILED = {"failed": "has failed", "exited": "has ended", "stalled": "is stalled"}


def broken(worker: Worker) -> bool:
    """Whether a worker is at fault, so that a person has to look after it."""
    state = worker["state"]
    ended = state in ("exited", "stopped", "unknown") and worker["desired"] == "running"
    return state in ("failed", "stalled") or ended


def rests(worker: Worker) -> bool:
    """Whether a worker does not run, and nobody wants it to."""
    return worker["state"] in ("stopped", "exited") and not broken(worker)


def urgency(worker: Worker) -> tuple[int, tuple[tuple[str, int], ...]]:
    """Sorts workers that need a person first, and those that ended on purpose last."""
    nick = natural(worker["nick"])
    if broken(worker):
        return (1 if worker["state"] == "stalled" else 0), nick
    return (3 if rests(worker) else 2), nick


def state_word(worker: Worker, asking: Container[str]) -> str:
    """Its state as people read it: `asks` for one that waits for an answer.

    Args:
        asking: uids of the workers whose approvals are pending.
    """
    task = worker.get("task")
    asks = worker["uid"] in asking or (task is not None and is_question(task["state"]))
    runs = not broken(worker) and worker["state"] != "stopped"
    return "asks" if asks and runs else worker["state"]


def asking(approvals: Iterable[Approval]) -> frozenset[str]:
    """Uids of the workers that ask."""
    return frozenset(approval["worker"]["uid"] for approval in approvals)


def last_word(worker: Worker) -> str:
    """What it said last, or what it is at: "" for one without a task that has nothing to tell."""
    detail, task = one_line(worker["detail"] or "", 300), worker.get("task")
    if trouble := one_line(worker.get("trouble", ""), 300):
        return trouble
    if task is None or ((broken(worker) or worker["state"] == "stopped") and detail):
        return detail
    again = f"attempt {task['attempt']}: " if task["attempt"] > 1 else ""
    said = one_line(task.get("status_text", "")) or detail or f'"{one_line(task["text"])}"'
    return again + said


def told_alerts(status: Status) -> list[Alert]:
    """The alerts that say something new: what is answered needs nobody, and failed workers are listed themselves."""
    failed = {worker["nick"] for worker in status["workers"] if broken(worker)}
    return [
        alert
        for alert in status["alerts"]
        if alert["kind"] not in NEEDS
        and not (alert["kind"] in FAILURES and alert["nick"] in failed)
    ]


def alert_line(alert: Alert, now: float) -> str:
    """Number, time, agent and text of an alert on one line."""
    who = f"@{one_line(alert['nick'], 64)} " if alert["nick"] else ""
    again = f" ({alert['count']} times)" if alert["count"] > 1 else ""
    return f"{alert['id']}  {clock(alert['at'], now)}  {who}{one_line(alert['text'], 300)}{again}"


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
