"""Follows a task to its end: changes go to standard error as they come, the result to standard output."""

from __future__ import annotations

import json
import math
import sys
import threading
import time
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol

import click

from postroom.cli.answering import Answers, has_person
from postroom.cli.declaring import parameter
from postroom.cli.output import print_content
from postroom.errors import NotRunning, RequestTimeout
from postroom.lines.rows import colour_of
from postroom.lines.tasks import update_line
from postroom.lines.text import block
from postroom.protocol.tasks import EXIT_CODES
from postroom.view.tasks import TaskUpdates, answer_hint, is_question, kept, short
from postroom.view.words import address
from postroom_a2a.task_state import TaskState
from postroom_a2a.text import one_line

if TYPE_CHECKING:
    from postroom.client.http import Client
    from postroom.client.stream import EventStream
    from postroom.protocol.shapes import Artifact, Task


timeout_option = parameter(
    "--timeout S: Seconds to wait for the end; then the exit status is 9, and the task goes on.",
    type=click.FloatRange(0),
)
"""None for no limit: a task may wait for days."""

events_option = parameter(
    "--events/--quiet events: Show what the agent does; by default in a terminal.", default=None
)
"""Whether to show what the agent does; by default if a person is there."""


def follow(
    client: Client,
    task: Task,
    *,
    timeout: float | None,
    as_json: bool,
    events: bool | None = None,
) -> int:
    """Show every change of `task`, then its result; returns the exit status.

    Args:
        events: show what the agent does for it, too; None: if a person is there.

    Raises:
        RequestTimeout: it has not ended after `timeout` seconds.
        PostroomError: the post room has gone.
    """
    screen: TaskScreen = _JsonLines() if as_json else _Terminal(task)
    screen.begin(task)
    stream = client.follow_task(task["id"], away=say_away)
    watch = f"postroom task watch {short(task['id'])}"
    try:
        with (
            _closed_after(stream, client.transport.left()),
            _answers(client, as_json) as answers,
            _doing(client, task, answers, events, as_json),
        ):
            for event in stream:
                if event.kind == "trouble":
                    screen.trouble(event.data)
                    continue
                asks = is_question(event.data["state"])
                if answers is not None and not asks:
                    answers.ask("")  # before the question is shown: earlier input is not an answer
                screen.change(event.data)
                if asks:
                    _ask(client, event.data, answers)
        ended = client.task(task["id"])
    except KeyboardInterrupt:
        click.echo(f"\nthe task goes on: {watch}", err=True)
        raise click.Abort from None
    except NotRunning as error:
        error.remedy = f"{error.remedy}; then {watch}" if error.remedy else watch
        raise
    if not ended["final"]:
        raise RequestTimeout(
            f"no final state within {timeout or 0:g} s: task {short(task['id'])} is {ended['state']}"
            " and goes on",
            remedy=_next_step(ended),
        )
    screen.end(ended)
    return EXIT_CODES.get(ended["state"], 1)


def _next_step(task: Task) -> str:
    if is_question(task["state"]):
        return answer_hint(task["id"])
    return f"postroom task watch {short(task['id'])}"


def _doing(
    client: Client, task: Task, answers: Answers | None, events: bool | None, as_json: bool
) -> AbstractContextManager[None]:
    """Shows what the agent does, if that is wanted."""
    wanted = has_person() and not as_json if events is None else events
    if task["final"] or not wanted:
        return nullcontext()
    from postroom.cli.answering import shown

    return shown(client, task, answers, as_json=as_json)


def _answers(client: Client, as_json: bool) -> AbstractContextManager[Answers | None]:
    """The source of a person's answers; None for a script."""
    return nullcontext() if as_json or not has_person() else Answers(client, sys.stdin.fileno())


def _ask(client: Client, event: Any, answers: Answers | None) -> None:
    """Have the person answer a question, if it is still open; a script gets an error that says how."""
    task = client.task(event["task"])
    if not is_question(task["state"]) or task["seq"] > event["seq"]:
        return  # it has an answer already
    if answers is None:
        question = one_line(event["text"], 300) or task["state"]
        raise RequestTimeout(
            f"{address(task['worker'])} asks, and task {short(task['id'])} waits for the answer: {question}",
            remedy=answer_hint(task["id"]),
        )
    answers.ask(task["id"])
    click.echo(f"    answer here, or: {answer_hint(task['id'])}", err=True)


def say_away(away: bool) -> None:
    """Report on standard error that the post room has gone, or is back."""
    said = "the post room is away: waiting for it" if away else "the post room is back"
    click.echo(said, err=True)


@contextmanager
def _closed_after(stream: EventStream, seconds: float) -> Generator[None]:
    """End `stream` from outside when the time is over, even while it waits for bytes."""
    if math.isinf(seconds):
        yield
        return
    timer = threading.Timer(min(seconds, threading.TIMEOUT_MAX), stream.close)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class TaskScreen(Protocol):
    """Shows a task that is followed."""

    def begin(self, task: Task) -> None:
        """Show the task as it is at the start."""

    def change(self, event: Any) -> None:
        """Show a change."""

    def trouble(self, event: Any) -> None:
        """Show what keeps the task from going on; "" if nothing does any more."""

    def end(self, task: Task) -> None:
        """Show the end."""


class _JsonLines:
    """One JSON object per line: the task, each of its changes, and the task at its end; `type` tells them apart."""

    def begin(self, task: Task) -> None:
        self._line("task", task)

    def change(self, event: Any) -> None:
        self._line("update", event)

    def trouble(self, event: Any) -> None:
        self._line("trouble", event)

    def end(self, task: Task) -> None:
        self._line("result", task)

    def _line(self, kind: str, record: Any) -> None:
        click.echo(json.dumps({"type": kind, **record}, ensure_ascii=True))


class _Terminal:
    """Output for a person, or for a pipe that wants the result alone."""

    def __init__(self, task: Task) -> None:
        self._updates = TaskUpdates(task["worker"])
        self._kept = task["detail"]

    def begin(self, task: Task) -> None:
        if why := kept(task):
            click.echo(why, err=True)

    def change(self, event: Any) -> None:
        if event["final"]:
            return  # the task itself shows the end, since it has the whole result
        click.echo(update_line(self._updates, event, time.time()), err=True)

    def trouble(self, event: Any) -> None:
        text = one_line(event["text"], 300)
        if text == self._kept:
            return
        self._kept = text
        if text:
            worker = one_line(event["worker"])
            logs = f"; postroom logs {worker}" if worker else ""
            click.echo(f"{click.style(text, fg='red')}{logs}", err=True)

    def end(self, task: Task) -> None:
        said, results = task["status_text"], task.get("artifacts", [])
        if task["state"] == TaskState.COMPLETED and not results:
            results, said = _as_result(said), ""
        elif any(said.strip() == artifact["text"].strip() for artifact in results):
            said = ""
        label = click.style(one_line(task["state"]), fg=colour_of(task["state"]))
        click.echo(block(f"{label}: ", said) if said.strip() else label, err=True)
        for number, artifact in enumerate(results, 1):
            if len(results) > 1:
                name = one_line(artifact["name"] or artifact["id"], 60)
                click.echo(f"artifact {name} ({number} of {len(results)}):", err=True)
            print_content(artifact, always=True)


def _as_result(text: str) -> list[Artifact]:
    """The agent's last text is the result of a task without artifacts."""
    return [{"id": "", "name": "", "text": text, "parts": []}] if text.strip() else []
