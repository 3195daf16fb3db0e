"""Workers and agents as text of a terminal, what is said of a new one, alerts. Agents' texts are made harmless here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from postroom.lines.rows import Row, Span, Style, style_of
from postroom.protocol.modes import DIRECT
from postroom.view.sessions import standing, whereabouts
from postroom.view.tasks import NOTHING, run_time, short, usage_cell
from postroom.view.words import ago, clock
from postroom.view.workers import WEAK, broken, state_word
from postroom.view.workspaces import place, where
from postroom_a2a.text import one_line

if TYPE_CHECKING:
    from postroom.protocol.shapes import Alert, Current, Listed, Worker, Workspace


def alert_line(alert: Alert, now: float) -> str:
    """Number, time, agent and text of an alert on one line."""
    who = f"@{one_line(alert['nick'], 64)} " if alert["nick"] else ""
    again = f" ({alert['count']} times)" if alert["count"] > 1 else ""
    return f"{alert['id']}  {clock(alert['at'], now)}  {who}{one_line(alert['text'], 300)}{again}"


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
                Span(one_line(state), style_of(state)),
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
    if (session := agent.get("session")) is not None:
        state = standing(session, online=agent["online"])
        head = (
            Span(f"@{one_line(agent['nick'])} ", Style.STRONG),
            Span(state, style_of(state)),
            Span("  session", Style.DIM),
        )
        return [Row(head), Row.of(whereabouts(session, now), Style.DIM)]
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
            Span(one_line(task["state"]), style_of(task["state"])),
            Span(f" {took}{again}: " if took or again else ": ", Style.DIM),
            Span(one_line(task["text"], 300)),
        )
    )
    if said := one_line(task.get("status_text", ""), 300):
        yield Row.of(said, indent=2)


def _place(worker: Worker) -> Iterator[Row]:
    workspace = worker.get("workspace")
    if workspace:
        style = Style.BAD if workspace["mode"] == DIRECT else Style.DIM
        yield Row.of(f"works {place(workspace)}", style)


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


def sandbox_text(worker: Worker) -> str:
    """The worker's sandbox; in red unless it is an enforced wall."""
    from postroom.protocol.template import LEVELS  # what only lists workers needs no template

    wall = worker["sandbox"]
    provider, level = one_line(str(wall["provider"])), one_line(str(wall["level"]))
    text = provider if provider == level else f"{provider}: {level}"
    return "sandbox " + (text if level == LEVELS[0] else click.style(text, fg="red", bold=True))


def place_text(workspace: Workspace) -> str:
    """Where it works; in red if that is the folder itself."""
    text = where(workspace)
    return click.style(text, fg="red", bold=True) if workspace["mode"] == DIRECT else text


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
