"""The lines of `postroom status`. Agents wrote the texts, so all of it is made harmless here."""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING

import click

from postroom.build import NUMBER, commit, named, version
from postroom.lines.rows import colour_of
from postroom.lines.text import Cell, columns, fitted, table
from postroom.lines.workers import alert_line
from postroom.protocol.autonomy import Autonomy
from postroom.protocol.modes import DIRECT
from postroom.protocol.sessions import SessionStanding
from postroom.settings import DEFAULT_ORG
from postroom.view.needs import NeedKind, command_of, line_of, needs_of
from postroom.view.sessions import standing
from postroom.view.tasks import NOTHING, run_time, short, usage_cell
from postroom.view.words import address, ago, natural
from postroom.view.workers import WEAK, asking, broken, last_word, state_word, told_alerts, urgency
from postroom.view.workspaces import apart
from postroom_a2a.text import one_line

if TYPE_CHECKING:
    from postroom.protocol.shapes import Status, Worker


ASK = Autonomy.ASK.value
FAILURES = frozenset({NeedKind.FAILED, NeedKind.STALLED})
LISTED = FAILURES | {NeedKind.APPROVAL, NeedKind.QUESTION}
"""What stands first; the other needs have lines of their own."""

HEAD = ("NICK", "STATE", "TASK", "TIME", "LAST")
SESSIONS = ("SESSION", "STATE", "CLIENT", "HEARD", "FOLDER")
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
    lines += [fitted(line, width) for line in _grants(status, now)]
    lines += _sessions(status, now, width)
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
    needs = [
        each
        for each in needs_of(status, status.get("approvals", []), (), now)
        if each.kind in LISTED
    ]
    lines = [click.style("needs you:", fg="yellow", bold=True)] if needs else []
    for need in needs:
        id_ = "" if need.kind in FAILURES else f"{short(need.id)} "
        lines += [
            *_wrapped(f"  {id_}{line_of(need)}", "      ", width),
            *_wrapped(f"    {command_of(need)}", "      ", width),
        ]
    return lines


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


def _alerts(status: Status, now: float, width: int | None) -> list[str]:
    return [_labelled("alert", alert_line(alert, now), width) for alert in told_alerts(status)]


def _grants(status: Status, now: float) -> list[str]:
    """Who asks to be let in, and which grants have ended within a day."""
    lines = [
        f"asks to be let in: {address(each['grantee'])} by {address(each['granter'])}"
        f" (postroom grants answer {each['id'][:12]} allow)"
        for each in status.get("asking", [])
    ]
    for each in status.get("grants", []):
        if each["state"] != "valid":
            ended = f", {ago(each['ended_at'], now)}" if each["ended_at"] else ""
            pair = f"{address(each['grantee'])} is let in no more by {address(each['granter'])}"
            lines.append(f"{pair} ({each['state']}{ended})")
    return lines


def _sessions(status: Status, now: float, width: int | None) -> list[str]:
    """The sessions in terminals: how each stands, its client and folder, and when it was heard; of gone ones their
    number.
    """
    everything = status.get("sessions", [])
    known = [each for each in everything if each["state"] != SessionStanding.GONE]
    rows = []
    for session in sorted(known, key=lambda each: natural(each["nick"])):
        state, here = standing(session, online=session["online"]), session["online"]
        rows.append(
            [
                Cell(f"@{session['nick']}"),
                Cell(state, "green" if here else None, dim=not here),
                Cell(session["client"]),
                Cell(ago(session["heard_at"], now)),
                Cell(session["folder"]),
            ]
        )
    lines = table(SESSIONS, rows, cut=("FOLDER", "SESSION"), width=width) if rows else []
    gone = len(everything) - len(known)
    said = f"{gone} session{'s' if gone > 1 else ''} gone, to be resumed (postroom agents)"
    return [*lines, fitted(said, width)] if gone else lines


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


def _row(worker: Worker, now: float, asks: Container[str]) -> list[Cell]:
    task, state = worker.get("task"), state_word(worker, asks)
    shown = [
        Cell(f"@{worker['nick']}"),
        Cell(
            state, colour_of(state), bold=broken(worker) or state == "asks", dim=state == "stopped"
        ),
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
