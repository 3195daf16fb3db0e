"""A task as a person reads it, whole: its request, all that happened, its results. Agents' texts are made harmless."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import click

from postroom.lines.markdown import drawn
from postroom.lines.rows import Row, Span, Style, colour_of, style_of
from postroom.lines.text import Cell, block, body_lines, fetch_lines
from postroom.view.tasks import (
    NOTHING,
    TaskUpdates,
    answer_hint,
    is_question,
    kept,
    run_time,
    short,
    usage_line,
)
from postroom.view.words import address, clock, lines_of, part_lines
from postroom_a2a.task_state import TaskState
from postroom_a2a.text import one_line

if TYPE_CHECKING:
    from postroom.protocol.shapes import Artifact, Task, TaskEvent, TaskMessage


def whole_rows(task: Task, events: Iterable[TaskEvent], now: float) -> Iterator[Row]:
    """All of it."""
    state = Span(one_line(task["state"]), style_of(task["state"]))
    yield Row((Span(f"task {one_line(task['id'])} "), state))
    attempt = f", attempt {task['attempt']}" if task["attempt"] > 1 else ""
    skill = f", skill {one_line(task['skill'], 80)}" if task["skill"] else ""
    yield Row.of(f"{address(task['requester'])} to {address(task['worker'])}{skill}{attempt}")
    over = f" over {one_line(task['door'], 20)}" if task.get("door") else ""
    yield Row.of(f"given {clock(task['created_at'], now)}{over}, message {short(task['request'])}")
    if task.get("retry_of"):
        yield Row.of(f"retry of {short(task['retry_of'])}")
    for again in task.get("retried_as", ()):
        yield Row.of(f"retried as {short(again)}")
    if why := kept(task):
        yield Row.of(why, wraps=True)
    if followed := one_line(task.get("followed", ""), 200):
        yield Row.of(followed, wraps=True)
    yield from _indented(body_lines(task))
    if used := usage_line(task.get("usage", NOTHING)):
        yield Row.of(used)
    yield from update_rows(task, events, now)
    for artifact in task.get("artifacts", []):
        yield from _artifact(artifact)
    if is_question(task["state"]):
        yield Row.of(f"answer it: {answer_hint(task['id'])}")


MOST = 400
"""Lines of the results of a task that stand beside its request; the task, shown whole, has all."""


def answer_rows(task: Task, now: float) -> list[Row]:
    """How a task ended, and its results, or why it has none; the first row says the most."""
    took = run_time(task, now, task["updated_at"])
    texts = [found["text"] for found in task.get("artifacts", ()) if found["text"].strip()]
    text = "\n".join(texts) or task["status_text"] or task["detail"]
    lines = lines_of(text.strip("\n")) if text.strip() else []
    made = drawn(lines[:MOST])[0]
    more = [Row(line, indent=6, wraps=True) for line in made] if len(made) > 1 else []
    if len(lines) > MOST:
        more.append(
            Row.of(f"… {len(lines) - MOST} more lines; Enter shows all", Style.DIM, indent=6)
        )
    for found in task.get("artifacts", ()):
        more += [Row.of(line, Style.TOOL, indent=6, wraps=True) for line in part_lines(found)]
    gist = made[0] if len(made) == 1 else (Span(one_line(text, 60), Style.DIM),) if made else ()
    head = (
        Span(f"task {short(task['id'])} ", Style.DIM),
        Span(one_line(task["state"]), style_of(task["state"])),
        Span(f" {took}" if took else "", Style.DIM),
        Span(": " if gist else "", Style.DIM),
        *gist,
    )
    return [Row(head, indent=4, wraps=len(made) == 1), *more]


_SENT = {"message": "sent to", "task": "gave a task to"}


def message_rows(messages: Iterable[TaskMessage], now: float) -> Iterator[Row]:
    """What its agent sent in its course; the rest of the messages is in what happened."""
    sent = [each for each in messages if each["kind"] in _SENT and each["to"] is not None]
    if sent:
        yield Row.of("messages of its agent in its course:")
    for each in sent:
        when = Span(f"{clock(each['at'], now)} ", Style.DIM)
        said = f"{_SENT[each['kind']]} {address(each['to'])}, {short(each['id'])}, {each['state']}"
        yield Row((when, Span(f"{said}: {one_line(each['text'], 200)}")), indent=2, wraps=True)


def short_rows(task: Task, events: Iterable[TaskEvent], now: float) -> Iterator[Row]:
    """A row that says all in short, then all that happened."""
    until = task["updated_at"] if task["final"] else ""
    took = run_time(task, now, until)
    yield Row(
        (
            Span(f"task {short(task['id'])} ", Style.STRONG),
            Span(one_line(task["state"]), style_of(task["state"])),
            Span(f" {took}" if took else "", Style.DIM),
            Span(f" {address(task['requester'])} to {address(task['worker'])}: ", Style.DIM),
            Span(one_line(task["text"], 300)),
        ),
        wraps=True,
    )
    yield from (Row(row.spans, row.indent + 2, row.wraps) for row in update_rows(task, events, now))


def update_rows(task: Task, events: Iterable[TaskEvent], now: float) -> Iterator[Row]:
    """All that happened to it."""
    updates = TaskUpdates(task["worker"])
    for event in events:
        label, text = updates.parts(event)
        head = (
            Span(f"{clock(event['at'], now)} ", Style.DIM),
            Span(label, style_of(event["state"])),
        )
        if not text.strip():
            yield Row(head, wraps=True)
            continue
        first, *rest = lines_of(text.strip("\n"))
        yield Row((*head, Span(f": {first}")), wraps=True)
        yield from (Row.of(f"| {line}", indent=4, wraps=True) for line in rest)


def update_line(updates: TaskUpdates, event: TaskEvent, now: float) -> str:
    """One change; further lines of a text are indented under it."""
    label, text = updates.parts(event)
    when = click.style(clock(event["at"], now), dim=True)
    shown = click.style(label, fg=colour_of(event["state"]))
    return block(f"{when} {shown}: ", text) if text.strip() else f"{when} {shown}"


def _artifact(artifact: Artifact) -> Iterator[Row]:
    yield Row.of(f"artifact {one_line(artifact['name'] or artifact['id'], 60)}:")
    lines = part_lines(artifact)
    if artifact["text"] or not lines:
        for line in lines_of(artifact["text"].strip("\n")):
            yield Row.of(f"| {line}", indent=4, wraps=True)
    for line in (*lines, *fetch_lines(artifact)):
        yield Row.of(line, indent=4, wraps=True)


def _indented(lines: Iterable[str]) -> Iterator[Row]:
    """Lines that are indented by four columns already, as rows."""
    for several in lines:
        for line in several.split("\n"):
            yield Row.of(line.removeprefix("    "), indent=4, wraps=True)


TASK_HEAD = ("ID", "STATE", "WORKER", "FROM", "TIME", "TASK", "LAST")


def task_row(task: Task, now: float) -> list[Cell]:
    """A task in a table under `TASK_HEAD`."""
    state = task["state"]
    return [
        Cell(short(task["id"])),
        Cell(state, colour_of(state), bold=is_question(state), dim=state == TaskState.CANCELED),
        Cell(address(task["worker"])),
        Cell(address(task["requester"])),
        Cell(run_time(task, now, task["updated_at"] if task["final"] else "")),
        Cell(task["text"]),
        Cell(_last(task)),
    ]


def _last(task: Task) -> str:
    """The worker's last text, and what keeps it from going on."""
    said = one_line(task["status_text"])
    detail = one_line(task["detail"])
    if task["final"] or not said or said.startswith(detail.removesuffix("…")):
        return detail or said
    return f"{detail}; {said}" if detail else said
