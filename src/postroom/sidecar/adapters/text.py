"""Adapter `text`: for programs that read lines and print lines.

A message or a task becomes `nick: text`, further lines of it indented, so that no text can pass for another message.
The first line the program prints after a task is its result: it becomes the artifact and completes the task. Any
other line answers the last message it was handed; before any, it is a post.

Such a program hears of a cancel by SIGINT. What it prints next is its last word on the task.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from postroom.protocol.text import one_line, printable
from postroom.sidecar.adapters.actions import (
    Action,
    Artifact,
    Canceled,
    Complete,
    Incoming,
    IncomingTask,
    Post,
    Reply,
    Sender,
)

CONTINUATION = "\n    "


class PlainText:
    """Adapter for programs that know nothing of Postroom."""

    def __init__(self) -> None:
        self._last = ""
        self._task = ""
        self._canceled = False

    def feed(self, line: str) -> list[Action]:
        """The result of a task, a reply to the last message, or a post; an empty line says nothing."""
        text = printable(line).rstrip()
        if not text:
            return []
        if self._task:
            return self._done(text)
        return [Reply(self._last, text) if self._last else Post(text)]

    def finish(self, exit_code: int, signal: int) -> list[Action]:  # noqa: ARG002
        """Nothing: each line stands for itself."""
        return []

    def render(self, message: Incoming) -> bytes:
        """`nick: text`, or `#project nick: text`, with every control character taken out."""
        if message.to.startswith("#"):
            return _line(message.sender, message.text, f"{one_line(message.to, 65)} ")
        self._last = message.id
        return _line(message.sender, message.text)

    def render_task(self, task: IncomingTask) -> bytes:
        """`nick: text`, as a message looks."""
        self._task, self._canceled = task.id, False
        return _line(task.sender, task.text)

    def render_control(self, record: Mapping[str, Any]) -> bytes:
        """The answer to what a tool of the program asked (`input`) as `nick: text`; nothing else."""
        match record:
            case {"type": "input", "task": task, "text": text, "from": {"uid": uid, "nick": nick}}:
                self._task, self._canceled = task, False
                return _line(Sender(uid, nick), text)
            case {"type": "cancel", "task": self._task}:
                self._canceled = True
        return b""

    def _done(self, text: str) -> list[Action]:
        task, self._task = self._task, ""
        if self._canceled:
            return [Canceled(task, text)]
        return [Artifact(task, text), Complete(task, text)]


def _line(sender: Sender, text: str, where: str = "") -> bytes:
    nick = one_line(sender.nick or sender.uid, 64)
    body = CONTINUATION.join(printable(text).split("\n"))
    return f"{where}{nick}: {body}\n".encode("utf-8", errors="replace")
