"""Answers that a person types while a command follows a task and shows its changes."""

from __future__ import annotations

import os
import selectors
import sys
import threading
from typing import TYPE_CHECKING, Self

from postroom.errors import Conflict, PostroomError

if TYPE_CHECKING:
    from postroom.client.http import Client

LONGEST = 4096
"""Bytes of a typed line, the most that a terminal delivers at once."""

JOIN = 2.0


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

    def _run(self) -> None:
        while self._readable():
            line = os.read(self._descriptor, LONGEST)
            if not line:
                return  # Ctrl-D: go on waiting for the task without answering
            task, text = self._asking, line.decode(errors="replace").strip()
            if task and text:
                self._answer(task, text)

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
