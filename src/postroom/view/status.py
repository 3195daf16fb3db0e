"""The lines of `postroom status`. Agents wrote the texts, so all of it is made harmless here."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import TYPE_CHECKING, Any

import click

from postroom.build import NUMBER, commit, named, version
from postroom.lines.words import Cell, address, ago, clock, columns, fitted, natural, table
from postroom.protocol.autonomy import Autonomy
from postroom.protocol.modes import DIRECT
from postroom.settings import DEFAULT_ORG
from postroom.view.approvals import what
from postroom.view.needs import waiting
from postroom.view.tasks import (
    answer_hint,
    colour_of,
    is_question,
    kept,
    question_of,
    run_time,
    short,
)
from postroom.view.usage import NOTHING, usage_cell
from postroom.view.workspaces import apart
from postroom_a2a.text import one_line

if TYPE_CHECKING:
    from postroom.protocol.shapes import Alert, Approval, Status, Task, Worker


COLOURS = {
    "failed": "red",
    "stalled": "yellow",
    "unknown": "yellow",
    "starting": "cyan",
    "working": "green",
    "idle": "green",
}
ASK = Autonomy.ASK.value
WEAK = frozenset({"partial", "none"})
"""Levels of a wall that only a person may choose."""

NEEDS = frozenset({"approval", "input-required"})
"""Kinds of the alerts about approvals and questions, which are shown among the needs for the person."""

FAILURES = frozenset({"worker-ended", "worker-not-started", "worker-limit", "stalled"})
"""Kinds of the alerts about workers that do not run, or stall."""

FAILED = {"failed": "has failed", "exited": "has ended", "stalled": "is stalled"}

HEAD = ("NICK", "STATE", "TASK", "TIME", "LAST")
PLUMBING = ("PROJECT", "OPEN", "UNREAD", "SEEN")


def status_lines(
    status: Status,
    now: float,
    *,
    width: int | None,
    wide: bool = False,
    reached: str = "",
    rest: int = 0,
) -> list[str]:
    """The screen from top to bottom: first the needs for a person, then the workers.

    Args:
        status: the post room's answer.
        width: columns of a line, None for no limit.
        reached: the URL of a post room of another machine, by which it was asked.
        rest: stopped workers that are left out of it.
    """
    lines = [fitted(_room(status, reached, wide=wide), width)]
    lines += _wrapped(other, "      ", width) if (other := _other_build(status, reached)) else []
    lines += _needed(status, now, width)
    for name, trouble in (("bus", status.get("bus")), ("audit", status.get("audit"))):
        if trouble:
            lines.append(_labelled(name, trouble, width))
    lines += _alerts(status, now, width)
    if status.get("inbox"):
        lines.append(fitted(f"unread messages to you: {status['inbox']} (postroom inbox)", width))
    if status["deadletters"]:
        count = str(status["deadletters"])
        lines.append(_labelled("dead letters", f"{count} (postroom deadletters list)", width))
    if not status["workers"]:
        # Who does not operate is told neither the process nor the workers.
        hidden = "pid" not in status["server"]
        none = "workers: not shown to you" if hidden else "no workers"
        how = "postroom agents shows who is there" if hidden else "postroom spawn TEMPLATE"
        if rest:
            none, how = "no worker runs", f"{rest} stopped: postroom status"
        return [*lines, fitted(f"{none} ({how})", width)]
    return lines + _workers(status, now, width, wide=wide)


def _room(status: Status, reached: str, *, wide: bool) -> str:
    server, me, org = status["server"], status["me"], status["org"]
    pid = f" (pid {server['pid']})" if wide and "pid" in server else ""
    where = f", org {org}" if wide or org != DEFAULT_ORG else ""
    if server.get("database"):
        where += f", data in {server['database']}"
    made = named(status["version"], one_line(status.get("commit", "")))
    at = reached or server["url"]
    return f"post room {made} at {at}{pid}{where}, you are @{me.get('nick', '?')}"


def _other_build(status: Status, reached: str) -> str:
    """That command and post room differ, "" where they do not, as far as that is known."""
    theirs, ours = one_line(status.get("commit", ""), 64), commit()
    same_commit = theirs == ours or not (theirs and ours)
    if status["version"] == NUMBER and same_commit:
        return ""
    there = "" if reached else "; its next start brings them together: postroom down, postroom up"
    return f"this command is {version()}, the post room {named(one_line(status['version'], 64), theirs)}{there}"


def _labelled(label: str, text: str, width: int | None) -> str:
    """`label: text`, the label in red."""
    line = fitted(f"{label}: {text}", width)
    head = f"{label}:"
    return click.style(head, fg="red") + line[len(head) :] if line.startswith(head) else line


def _needed(status: Status, now: float, width: int | None) -> list[str]:
    """Approvals, questions and failures, each with the command that goes on."""
    asked = waiting(status.get("approvals", []), status.get("attention", []), now)
    entries = [_asked(one) for one in asked]
    workers = sorted(status["workers"], key=lambda worker: natural(worker["nick"]))
    entries += [_failure(worker) for worker in workers if broken(worker)]
    if not entries:
        return []
    lines = [click.style("needs you:", fg="yellow", bold=True)]
    for need, command in entries:
        lines += [
            *_wrapped(f"  {need}", "      ", width),
            *_wrapped(f"    {command}", "      ", width),
        ]
    return lines


def _asked(record: Any) -> tuple[str, str]:
    return _approval(record) if "tool" in record else _question(record)


def _approval(approval: Approval) -> tuple[str, str]:
    id_, who = short(approval["id"]), address(approval["worker"])
    asked = f"{id_} {who} asks to use {one_line(approval['tool'], 80)}: {what(approval)}"
    return asked, f"postroom approve {id_}; postroom deny {id_}"


def _question(task: Task) -> tuple[str, str]:
    who, why = address(task["worker"]), kept(task)
    asked = f"{short(task['id'])} {who} asks: {question_of(task)}"
    return f"{asked} ({why})" if why else asked, answer_hint(task["id"])


def _failure(worker: Worker) -> tuple[str, str]:
    nick = one_line(worker["nick"])
    why = FAILED.get(worker["state"], "does not run")
    detail = f": {one_line(worker['detail'], 300)}" if worker["detail"] else ""
    return f"@{nick} {why}{detail}", f"postroom logs {nick}; postroom restart {nick}"


def broken(worker: Worker) -> bool:
    """Whether a worker is at fault, so that a person has to look after it."""
    state = worker["state"]
    ended = state in ("exited", "stopped", "unknown") and worker["desired"] == "running"
    return state in ("failed", "stalled") or ended


def rests(worker: Worker) -> bool:
    """Whether a worker does not run, and nobody wants it to."""
    return worker["state"] in ("stopped", "exited") and not broken(worker)


def _wrapped(text: str, indent: str, width: int | None) -> list[str]:
    """`text` in lines of at most `width` columns, the further ones after `indent`."""
    if width is None or columns(text) <= width:
        return [text]
    start = text[: len(text) - len(text.lstrip())]
    lines, line = [], start
    for word in text.split():
        added = line + word if not line.strip() else f"{line} {word}"
        if columns(added) > width and line.strip():
            lines.append(line)
            added = indent + word
        line = added
    return [cut_line(line, width) for line in (*lines, line)]


def cut_line(line: str, width: int) -> str:
    """A line cut to `width` columns, its indentation kept."""
    start = line[: len(line) - len(line.lstrip())]
    return start + fitted(line, max(0, width - len(start)))


def told_alerts(status: Status) -> list[Alert]:
    """The alerts that say something new: what is answered needs nobody, and failed workers are listed themselves."""
    failed = {worker["nick"] for worker in status["workers"] if broken(worker)}
    return [
        alert
        for alert in status["alerts"]
        if alert["kind"] not in NEEDS
        and not (alert["kind"] in FAILURES and alert["nick"] in failed)
    ]


def _alerts(status: Status, now: float, width: int | None) -> list[str]:
    return [_labelled("alert", alert_line(alert, now), width) for alert in told_alerts(status)]


def _workers(status: Status, now: float, width: int | None, *, wide: bool) -> list[str]:
    workers, asks = status["workers"], asking(status.get("approvals", []))
    weak = any(worker["sandbox"].get("level") in WEAK for worker in workers)
    walls = ("SANDBOX",) if wide or weak else ()
    free = any(worker.get("autonomy", ASK) not in ("", ASK) for worker in workers)
    unasked = ("UNASKED",) if free else ()
    direct = any(_mode(worker) == DIRECT for worker in workers)
    places = ("WORKS ON",) if direct or (wide and any(map(_mode, workers))) else ()
    used = (
        ("USED",)
        if wide and any(worker.get("usage", NOTHING) != NOTHING for worker in workers)
        else ()
    )
    ordered = sorted(workers, key=urgency)
    rows = [
        [
            *_row(worker, now, asks),
            *([_unasked(worker)] if unasked else []),
            *([_wall(worker, wide=wide)] if walls else []),
            *([_place(worker)] if places else []),
            *(_plumbing(worker, now) if wide else []),
            *([Cell(usage_cell(worker.get("usage", NOTHING)))] if used else []),
        ]
        for worker in ordered
    ]
    head = (*HEAD, *unasked, *walls, *places, *(PLUMBING if wide else ()), *used)
    return table(head, rows, cut=("LAST", *walls, *places, "NICK"), width=width)


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


def _row(worker: Worker, now: float, asks: Container[str]) -> list[Cell]:
    task, state = worker.get("task"), state_word(worker, asks)
    colour = "yellow" if state == "asks" else COLOURS.get(state)
    shown = [
        Cell(f"@{worker['nick']}"),
        Cell(state, colour, bold=broken(worker) or state == "asks", dim=state == "stopped"),
    ]
    last = Cell(last_word(worker), "red" if worker.get("trouble") else None)
    more = worker.get("open_tasks", 0) - (1 if task else 0)
    waiting = f"+{more}" if more > 0 else ""
    if task is None:
        return [*shown, Cell(waiting or "-", dim=not waiting), Cell(""), last]
    return [
        *shown,
        Cell(f"{short(task['id'])} {waiting}".rstrip(), colour_of(task["state"])),
        Cell(run_time(task, now)),
        last,
    ]


def _unasked(worker: Worker) -> Cell:
    """What its agent does without asking; red where that is everything and the wall is none that holds."""
    word = worker.get("autonomy", "")
    if word in ("", ASK):
        return Cell("-", dim=True)
    weak = worker["sandbox"].get("level") in WEAK
    return Cell(word, "red" if weak else "yellow", bold=weak)


def _wall(worker: Worker, *, wide: bool) -> Cell:
    wall = worker["sandbox"]
    level = str(wall.get("level", "")) or "unknown"
    text = f"{level} ({wall.get('provider', '')})" if wide else level
    return Cell(text, "red" if level in WEAK else None, bold=level in WEAK)


def _mode(worker: Worker) -> str:
    workspace = worker.get("workspace")
    return workspace["mode"] if workspace else ""


def _place(worker: Worker) -> Cell:
    """Branch or folder that it works on; a folder that it writes itself stands in red."""
    workspace = worker.get("workspace")
    if not workspace:
        return Cell("-", dim=True)
    direct = workspace["mode"] == DIRECT
    text = workspace["branch"] or f"{workspace['mode']} {workspace['path']}"
    if said := apart(workspace):
        text = f"{text} ({said})"
    return Cell(text, "red" if direct else None, bold=direct)


def _plumbing(worker: Worker, now: float) -> list[Cell]:
    """Project, open tasks, unread messages (unknown while the bus is away), and the last sign of life."""
    count, waiting = worker["unread"], worker.get("open_tasks", 0)
    return [
        Cell(f"#{worker['project']}" if worker["project"] else "-"),
        Cell(str(waiting), bold=waiting > 1),
        Cell("-", dim=True) if count is None else Cell(str(count), bold=count > 0),
        Cell(ago(worker["last_seen"], now)),
    ]


def alert_line(alert: Alert, now: float) -> str:
    """Number, time, agent and text of an alert on one line."""
    who = f"@{one_line(alert['nick'], 64)} " if alert["nick"] else ""
    again = f" ({alert['count']} times)" if alert["count"] > 1 else ""
    return f"{alert['id']}  {clock(alert['at'], now)}  {who}{one_line(alert['text'], 300)}{again}"
