"""Workers as people read of them: their state, how urgent it is, what they said last, what is said of a new one."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from typing import TYPE_CHECKING

import click

from postroom.errors import PostroomError
from postroom.lines.rows import Row, Span, Style
from postroom.lines.words import ago, clock, natural
from postroom.protocol.modes import DIRECT
from postroom.view.tasks import NOTHING, is_question, run_time, short, state_style, usage_cell
from postroom.view.workspaces import place, where
from postroom_a2a.text import one_line

if TYPE_CHECKING:
    from postroom.protocol.shapes import Alert, Approval, Current, Listed, Status, Worker, Workspace

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


def alert_line(alert: Alert, now: float) -> str:
    """Number, time, agent and text of an alert on one line."""
    who = f"@{one_line(alert['nick'], 64)} " if alert["nick"] else ""
    again = f" ({alert['count']} times)" if alert["count"] > 1 else ""
    return f"{alert['id']}  {clock(alert['at'], now)}  {who}{one_line(alert['text'], 300)}{again}"


# ── as rows ──

STATES = {
    "failed": Style.BAD,
    "stalled": Style.ASKS,
    "unknown": Style.ASKS,
    "asks": Style.ASKS,
    "starting": Style.TOOL,
    "working": Style.GOOD,
    "idle": Style.GOOD,
    "stopped": Style.DIM,
}


def worker_rows(worker: Worker, now: float, most: int = 9) -> list[Row]:
    """A worker, in at most so many rows; where it works and what it used share one where there are few."""
    rows = _worker_rows(worker, now)
    last = [row for row in (*_place(worker), _figures(worker, now)) if row.text]
    if last and len(rows) + len(last) > most:
        # Of a narrow row the figures are seen, and the beginning of the place.
        parts = [row.spans for row in reversed(last)]
        joined = [span for spans in parts for span in (*spans, Span(" · ", Style.DIM))][:-1]
        last = [Row(tuple(joined))]
        # A task matters more than both.
        rows = rows[: max(2 if most > 1 else 1, most - 1)]
    return [*rows, *last][:most]


def _worker_rows(worker: Worker, now: float) -> list[Row]:
    """Who it is and what it does; the first rows matter most."""
    task = worker.get("task")
    state = state_word(worker, ())
    wall = one_line(str(worker["sandbox"].get("level", "")))
    weak = f"sandbox {wall or 'unknown'}" if wall in WEAK else ""
    workspace = worker.get("workspace")
    if workspace and workspace["mode"] == DIRECT:
        weak = f"{weak}  in your folder itself".strip()
    free = one_line(worker.get("autonomy", ""))
    template = one_line(worker["template"].rpartition("/")[2])
    rows = [
        Row(
            (
                Span(f"@{one_line(worker['nick'])} ", Style.STRONG),
                Span(one_line(state), STATES.get(state, Style.PLAIN)),
                Span(f"  unasked: {free}" if free not in ("", "ask") else "", Style.ASKS),
                Span(f"  {weak}" if weak else "", Style.BAD),
                Span(f"  {template}" if template else "", Style.DIM),
            )
        )
    ]
    trouble = one_line(worker.get("trouble", ""), 300)
    if trouble:
        rows.append(Row.of(trouble, Style.BAD))
    if worker["detail"] and not (trouble and trouble in worker["detail"]):
        style = Style.BAD if broken(worker) else Style.DIM
        rows.append(Row.of(one_line(worker["detail"], 300), style))
    if task:
        rows += _task(task, now)
    return rows


def agent_rows(agent: Listed, now: float) -> list[Row]:
    """An agent that Postroom does not run, or a person."""
    online = ("online", Style.GOOD) if agent["online"] else ("offline", Style.DIM)
    kind = one_line(agent["kind"])
    head = (
        Span(f"@{one_line(agent['nick'])} ", Style.STRONG),
        Span(*online),
        Span(f"  {'person' if kind == 'human' else kind}", Style.DIM),
    )
    return [Row(head), Row.of(f"seen {ago(agent['seen_at'], now)}", Style.DIM)]


def card_rows(agent: Listed) -> Iterator[Row]:
    """What its card says."""
    card = agent["card"]
    if card is None:
        return
    if text := card.get("description"):
        yield Row.of(one_line(str(text), 600), wraps=True)
    for skill in card.get("skills") or ():
        said = one_line(str(skill.get("description") or ""), 300)
        name = one_line(str(skill.get("id") or skill.get("name") or "?"), 80)
        what = f": {said}" if said and said != name else ""
        yield Row((Span(f"skill {name}", Style.TOOL), Span(what)), indent=2, wraps=True)


def _task(task: Current, now: float) -> Iterator[Row]:
    took = run_time(task, now)
    again = f", attempt {task['attempt']}" if task["attempt"] > 1 else ""
    yield Row(
        (
            Span(f"task {short(task['id'])} "),
            Span(one_line(task["state"]), state_style(task["state"])),
            Span(f" {took}{again}: " if took or again else ": ", Style.DIM),
            Span(one_line(task["text"], 300)),
        )
    )
    if said := one_line(task.get("status_text", ""), 300):
        yield Row.of(said, indent=2)


def _place(worker: Worker) -> Iterator[Row]:
    workspace = worker.get("workspace")
    if workspace:
        text, style = place(workspace)
        yield Row.of(f"works {text}", Style.DIM if style is Style.PLAIN else style)


def _figures(worker: Worker, now: float) -> Row:
    used = usage_cell(worker.get("usage", NOTHING))
    which = "more" if worker.get("task") else "open"
    more = worker.get("open_tasks", 0) - (which == "more")
    words = [
        f"used {used}" if used != "-" else "",
        f"{worker['unread']} unread" if worker["unread"] else "",
        f"{more} {which} task{'s' if more > 1 else ''}" if more > 0 else "",
        f"seen {ago(worker['last_seen'], now)}" if worker["last_seen"] else "",
    ]
    return Row.of(" · ".join(word for word in words if word), Style.DIM)


# ── one that was just started ──

WAIT = 5.0
"""Seconds to wait for an agent to start or to end."""


def sandbox_text(worker: Worker) -> str:
    """The worker's sandbox; in red unless it is an enforced wall."""
    from postroom.protocol.template import LEVELS  # what only lists workers needs no template

    wall = worker["sandbox"]
    provider, level = one_line(str(wall["provider"])), one_line(str(wall["level"]))
    text = provider if provider == level else f"{provider}: {level}"
    return "sandbox " + (text if level == LEVELS[0] else click.style(text, fg="red", bold=True))


def place_text(workspace: Workspace) -> str:
    """Where it works; in red if that is the folder itself."""
    text, style = where(workspace)
    return click.style(text, fg="red", bold=True) if style is Style.BAD else text


def spawned(worker: Worker) -> str:
    """Who was started, where, behind which wall."""
    project = f" in #{one_line(worker['project'])}" if worker["project"] else ""
    return f"spawned @{one_line(worker['nick'])}{project}, {sandbox_text(worker)}"


def notes(worker: Worker) -> list[str]:
    """Where it works, what it has not got, and whether it is still starting."""
    said: list[str] = []
    if workspace := worker.get("workspace"):
        said.append(f"it works {place_text(workspace)}")
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
    from postroom.protocol.presence import last_words

    nick = one_line(worker["nick"])
    return PostroomError(
        f"@{nick} ended at once: {one_line(worker['detail'])}",
        remedy=f"postroom logs {nick} has more; when it is mended: postroom restart {nick}",
        details=tuple(last_words(worker.get("stderr", []))),
    )
