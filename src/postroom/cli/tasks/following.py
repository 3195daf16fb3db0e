"""Follows a task to its end: changes go to standard error as they come, the result to standard output."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import click

from postroom.cli.options import Decorated
from postroom.cli.output import block
from postroom.cli.tasks.lines import Updates, answer_hint, colour_of, file_lines, is_question, short
from postroom.errors import RequestTimeout
from postroom.protocol.tasks import EXIT_CODES, TaskState
from postroom.protocol.text import one_line, printable

if TYPE_CHECKING:
    from postroom.client.http import Client
    from postroom.client.records import Artifact, Task
    from postroom.client.stream import EventStream


def timeout_option(command: Decorated) -> Decorated:
    """`--timeout S`, None for as long as it takes: a task may wait for days."""
    return click.option(
        "--timeout",
        type=click.FloatRange(0),
        metavar="S",
        help="Seconds to wait for the end; then the exit status is 9, and the task goes on.",
    )(command)


def follow(client: Client, task: Task, *, timeout: float | None, as_json: bool) -> int:
    """Show every change of `task` from its first to its last one, then its result; returns the exit status.

    Raises:
        RequestTimeout: it has not ended after `timeout` seconds.
        PostroomError: the post room has gone.
    """
    screen: Screen = _JsonLines() if as_json else _Terminal(task)
    screen.begin(task)
    stream = client.follow_task(task["id"])
    try:
        with _closed_after(stream, timeout):
            for event in stream:
                screen.change(event.data)
        ended = client.task(task["id"])
    except KeyboardInterrupt:
        click.echo(f"\nthe task goes on: postroom task watch {short(task['id'])}", err=True)
        raise click.Abort from None
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


@contextmanager
def _closed_after(stream: EventStream, seconds: float | None) -> Generator[None]:
    """End `stream` from outside when the time is over, also while it waits for bytes."""
    if seconds is None:
        yield
        return
    timer = threading.Timer(min(seconds, threading.TIMEOUT_MAX), stream.close)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class Screen(Protocol):
    """Shows a task that is followed."""

    def begin(self, task: Task) -> None:
        """How it stands now."""

    def change(self, event: Any) -> None:
        """A change of it."""

    def end(self, task: Task) -> None:
        """How it ended."""


class _JsonLines:
    """One JSON object per line: the task, each of its changes, and the task as it ended."""

    def begin(self, task: Task) -> None:
        self.change(task)

    def change(self, event: Any) -> None:
        click.echo(json.dumps(event, ensure_ascii=True))

    def end(self, task: Task) -> None:
        self.change(task)


class _Terminal:
    """For a person, or a pipe that wants the result alone."""

    def __init__(self, task: Task) -> None:
        self._updates = Updates(task, time.time())
        self._known = task["seq"]

    def begin(self, task: Task) -> None:
        if task["detail"] and not task["final"] and not is_question(task["state"]):
            click.echo(one_line(task["detail"], 300), err=True)

    def change(self, event: Any) -> None:
        if event["final"]:
            return  # the end is said from the task itself, which has the whole result
        click.echo(self._updates.line(event), err=True)
        if is_question(event["state"]) and event["seq"] >= self._known:  # not answered long since
            click.echo(f"    answer it: {answer_hint(event['task'])}", err=True)

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
            files = artifact.get("files", [])
            if artifact["text"] or not files:
                click.echo(printable(artifact["text"]).rstrip("\n"))
            for file in files:
                click.echo(one_line(file["url"]))
            for line in file_lines(artifact):
                click.echo(line, err=True)


def _as_result(text: str) -> list[Artifact]:
    """What an agent said at the end is the result of a task that has no artifact."""
    return [{"id": "", "name": "", "text": text}] if text.strip() else []
