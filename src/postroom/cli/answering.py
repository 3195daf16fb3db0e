"""Beside the changes of a task: what its agent does, as it does it, and the answers that a person types."""

from __future__ import annotations

import json
import os
import selectors
import sys
import threading
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import click

from postroom.cli.output import error_width, report
from postroom.cli.prompt import unseen
from postroom.errors import Conflict, Forbidden, InvalidInput, NotFound, PostroomError
from postroom.lines.approvals import always_hint
from postroom.lines.events import EventRows, request_rows
from postroom.lines.rows import painted
from postroom.protocol.events import EventKind
from postroom.view.tasks import short
from postroom.view.words import address
from postroom_a2a.text import one_line

if TYPE_CHECKING:
    from postroom.client.answering import Answering
    from postroom.client.http import Client
    from postroom.client.stream import WorkerEvents
    from postroom.lines.rows import Row
    from postroom.protocol.shapes import Approval, Task

LONGEST = 4096
"""Bytes of a typed line, the most that a terminal delivers at once."""

JOIN = 2.0

_DECISIONS = {"y": "allowed", "yes": "allowed", "n": "denied", "no": "denied"}
"""What a line begins with that decides on what an agent asks to be allowed."""


def has_person() -> bool:
    """Whether a person uses this command: both its input and its output are a terminal."""
    streams = (sys.stdin, sys.stderr)
    return all(stream is not None and stream.isatty() for stream in streams)


class Answers:
    """Reads lines in a thread of its own; use it in a `with` statement."""

    def __init__(self, client: Client, descriptor: int) -> None:
        self._client = client
        self._descriptor = descriptor
        self._asking = ""
        self._requests: dict[str, str] = {}
        self._wake_read, self._wake_write = os.pipe()
        self._thread = threading.Thread(target=self._run, name="answers", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        os.write(self._wake_write, b"\0")
        self._thread.join(JOIN)
        os.close(self._wake_write)
        os.close(self._wake_read)

    def ask(self, task: str) -> None:
        """Use the next line as the answer to the question of `task`; "" for no question any more."""
        self._asking = task

    def permit(self, request: str, worker: str) -> None:
        """Use a next line `y` or `n` as the answer to what the agent of `worker` asks to be allowed."""
        self._requests[request] = worker

    def settled(self, request: str) -> None:
        """That needs no answer any more."""
        self._requests.pop(request, None)

    def _run(self) -> None:
        while self._readable():
            line = os.read(self._descriptor, LONGEST)
            if not line:
                return  # Ctrl-D: go on waiting for the task without answering
            task, text = self._asking, line.decode(errors="replace").strip()
            if self._requests and text in ("a", "A"):
                self._act(self._always if text == "a" else self._free)
            elif self._requests and (found := _DECISIONS.get(text.partition(" ")[0].lower())):
                reason = text.partition(" ")[2].strip()
                self._act(partial(self._decide, decision=found, reason=reason))
            elif task and text:
                self._answer(task, text)
            elif self._requests and text:
                self._explain(text)

    def _explain(self, text: str) -> None:
        """Say that a line decided nothing."""
        request = short(next(iter(self._requests)))
        said = f"{one_line(text, 20)} is no answer; nothing was decided"
        remedy = (
            f"y, n REASON, a (always), A (all until the task ends), or: postroom approve {request}"
        )
        report(InvalidInput(said, remedy=remedy))

    @staticmethod
    def _decide(
        answering: Answering, worker: str, request: str, *, decision: str, reason: str
    ) -> None:
        answering.settle(worker, request, decision, reason)

    def _always(self, answering: Answering, worker: str, request: str) -> None:
        said = answering.always(self._client.approval(request, worker=worker))
        click.echo(f"    {said}", err=True)

    def _free(self, answering: Answering, worker: str, request: str) -> None:
        answering.free(worker, self._client.approval(request, worker=worker)["task"])

    def _act(self, act: Callable[[Answering, str, str], None]) -> None:
        """Answer what was asked first."""
        from postroom.client.answering import Answering

        answering = Answering(self._client, channel="cli", report=report, ask=self._unseen)
        request, worker = next(iter(self._requests.items()))
        try:
            act(answering, worker, request)
        except PostroomError as error:
            report(error)
            if not isinstance(error, Conflict):
                return
        self.settled(request)

    def _unseen(self, mark: str) -> str:
        """A line that is not shown; this is the thread that reads."""
        with unseen(self._descriptor, f"{mark}: "):
            line = os.read(self._descriptor, LONGEST) if self._readable() else b""
        return line.decode(errors="replace").strip()

    def _answer(self, task: str, text: str) -> None:
        self._asking = ""
        try:
            self._client.answer_task(task, text)
        except PostroomError as error:
            report(error)
            if not isinstance(error, Conflict):
                self._asking = task

    def _readable(self) -> bool:
        """Wait for input; False at the end. A job in the background must not read: that would stop it."""
        with selectors.PollSelector() as selector:
            selector.register(self._wake_read, selectors.EVENT_READ)
            if self._in_foreground():
                selector.register(self._descriptor, selectors.EVENT_READ)
            ready = {key.fd for key, _ in selector.select()}
        return self._wake_read not in ready

    def _in_foreground(self) -> bool:
        try:
            return os.tcgetpgrp(self._descriptor) == os.getpgrp()
        except OSError:
            return True  # a terminal without job control


EARLIER = 200
"""Newest events among which those of the task are shown first."""

JOIN_EVENTS = 2.0


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
        thread.join(JOIN_EVENTS)


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
