"""What the agent does for a task, shown between the changes of the task, as it does it."""

from __future__ import annotations

import json
import threading
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from postroom.cli.output import error_width
from postroom.errors import Forbidden, NotFound, PostroomError
from postroom.lines.rows import painted
from postroom.lines.words import address
from postroom.protocol.events import EventKind
from postroom.view.approvals import always_hint
from postroom.view.events import EventRows, request_rows
from postroom.view.tasks import short

if TYPE_CHECKING:
    from postroom.cli.tasks.answering import Answers
    from postroom.client.http import Client
    from postroom.client.stream import WorkerEvents
    from postroom.lines.rows import Row
    from postroom.protocol.shapes import Approval, Task

EARLIER = 200
"""Newest events among which those of the task are shown first."""

JOIN = 2.0


@contextmanager
def shown(client: Client, task: Task, answers: Answers | None, *, as_json: bool) -> Generator[None]:
    """Show the events of a task on standard error while the block runs, or as JSON beside its changes.

    Args:
        answers: takes a person's answer to what the agent asks; None where nobody is there.
    """
    worker = task["worker"]
    try:
        earlier = client.newest_events(worker["uid"], limit=EARLIER)
    except (NotFound, Forbidden):
        yield  # an agent that Postroom does not run, or a key that does not see what workers do
        return
    doing = _Doing(client, task, answers, as_json=as_json)
    for event in earlier:
        doing.take(event)
    doing.offer()
    after = earlier[-1]["id"] if earlier else 0
    feed = client.events(worker["uid"], after_id=after, for_ever=True)
    thread = threading.Thread(target=doing.run, args=(feed,), name="events", daemon=True)
    thread.start()
    try:
        yield
    finally:
        feed.close()
        thread.join(JOIN)


class _Doing:
    def __init__(
        self, client: Client, task: Task, answers: Answers | None, *, as_json: bool
    ) -> None:
        self._client = client
        self._as_json = as_json
        self._open: dict[str, Mapping[str, Any]] = {}
        self._offered = ""
        self._task = task["id"]
        self._rows = EventRows(task["worker"]["nick"], compact=True)
        self._answers = answers

    def run(self, feed: WorkerEvents) -> None:
        """Show what comes, in a thread of its own."""
        try:
            for event in feed:
                self.take(event)
                self.offer()
        except PostroomError as error:
            # The task itself is followed all the same, and says if the post room has gone.
            click.echo(f"what the agent does is not shown any more: {error.message}", err=True)

    def take(self, event: Mapping[str, Any]) -> None:
        """Show an event, if it is one of the task."""
        if event.get("task") != self._task:
            return
        if self._as_json:
            click.echo(json.dumps(dict(event) | {"type": "event", "kind": event["type"]}))
            return
        self._show(self._rows.of(event))
        request = str(event.get("request") or "")
        if not request or self._answers is None:
            return
        if event.get("type") == EventKind.CONTROL_RESPONSE:
            self._open.pop(request, None)
            self._answers.settled(request)
        elif event.get("kind") != "question":  # that is the task's question
            self._open[request] = event

    @staticmethod
    def _show(rows: Iterable[Row]) -> None:
        width = error_width()
        for row in rows:
            for line in painted(row, width):
                click.echo(line, err=True)

    def offer(self) -> None:
        """Say how the first that is open is answered, once: a typed line answers what was shown last."""
        request, event = next(iter(self._open.items()), ("", {}))
        if self._answers is None or request == self._offered:
            return
        self._offered = request
        if not request:
            return
        every, asked = "", self._asked(request, event)
        if asked is not None:
            # The agent may say something else in an event than in the request that it repeats.
            rows = request_rows(address(asked["worker"]), asked)
            if rows != request_rows(address(asked["worker"]), event):
                self._show(rows)
            every = f"\n    {always_hint(asked)}   A: all until this task ends"
        self._answers.permit(request, str(event["worker"]))
        hint = f"    y or n REASON here, or: postroom approve {short(request)}{every}"
        click.echo(click.style(hint, dim=True), err=True)

    def _asked(self, request: str, event: Mapping[str, Any]) -> Approval | None:
        """What waits for an answer, as the post room has it."""
        try:
            return self._client.approval(request, worker=str(event["worker"]))
        except PostroomError:
            return None
