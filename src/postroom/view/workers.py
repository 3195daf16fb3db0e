"""Workers as people read of them: their state, how urgent it is, what they said last."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import TYPE_CHECKING

from postroom.errors import PostroomError
from postroom.view.tasks import is_question
from postroom.view.words import natural
from postroom_a2a.text import one_line

if TYPE_CHECKING:
    from postroom.protocol.shapes import Alert, Approval, Status, Worker

WEAK = frozenset({"partial", "none"})
"""Levels of a wall that only a person may choose."""

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


# ── one that was just started ──

WAIT = 5.0
"""Seconds to wait for an agent to start or to end."""


def ended(worker: Worker) -> PostroomError | None:
    """The error of an agent that has ended at once, with its last words as details; None for one that has not."""
    if worker.get("started", True) is not False:
        return None
    from postroom.protocol.presence import last_words

    nick = one_line(worker["nick"])
    return PostroomError(
        f"@{nick} ended at once: {one_line(worker['detail'])}",
        remedy=f"postroom logs {nick} has more; when it is mended: postroom restart {nick}",
        details=tuple(last_words(worker.get("stderr", []))),
    )
