"""Answers that a person types while a command follows a task and shows its changes."""

from __future__ import annotations

import os
import selectors
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Self

import click

from postroom.cli.unseen import unseen
from postroom.errors import Conflict, InvalidInput, PostroomError
from postroom.view.tasks import short
from postroom_a2a.text import one_line

if TYPE_CHECKING:
    from postroom.client.answering import Answering
    from postroom.client.http import Client

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
        from postroom.cli.root import report

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
        from postroom.cli.root import report
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
        from postroom.cli.root import report

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
