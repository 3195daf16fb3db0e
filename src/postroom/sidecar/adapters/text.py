"""Adapter `text`: for programs that read a text and print a text, and know nothing of Postroom.

One run of the program handles one message or one task: the request is its whole standard input, and its whole output
is the answer. So both may have any number of lines, and every answer belongs to its request.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from postroom.protocol.limits import MAX_LINK, MAX_TEXT_ANSWER
from postroom.protocol.parts import TEXT, kind_of, media_type_of, name_in
from postroom.protocol.verbs import Artifact, Complete, Fail, Reply, Seen
from postroom.sidecar.adapters.adapter import (
    End,
    Incoming,
    IncomingTask,
    Output,
    Parts,
    Said,
    Sender,
)
from postroom_a2a.text import one_line, printable

MAX_STDERR = 2000
"""Characters of standard error in a failed task."""

CONTINUATION = "\n    "

_TOO_LONG = (
    f"the answer has more than {MAX_TEXT_ANSWER // 1024} KiB; try: postroom-agent artifact --file"
)


class PlainText:
    """The adapter of one run, for one message, post or task."""

    def __init__(self) -> None:
        self._task = ""
        self._message = ""
        self._wanted = False
        self._lines: list[str] = []
        self._left = MAX_TEXT_ANSWER

    def feed(self, line: str) -> list[Said]:
        """Nothing yet: a line is a part of the answer."""
        self._left -= len(line.encode(errors="replace")) + 1
        if self._left >= 0:
            self._lines.append(line)
        return []

    def skip(self) -> list[Said]:
        """Nothing yet; the answer will be incomplete."""
        self._left = -1
        return []

    def finish(self, end: End) -> list[Said]:
        """The answer, if the program ended well.

        A run that a signal ended gives no answer: its output may be incomplete.
        """
        said = printable("\n".join(self._lines)).rstrip().lstrip("\n")
        if end.signalled or end.signal or not (self._task or self._message):
            return [Output(line) for line in self._lines]
        if end.exit_code:
            return self._failed(end) + [Output(line) for line in self._lines]
        return self._of_task(said) if self._task else self._of_message(said)

    def _of_task(self, said: str) -> list[Said]:
        if self._left < 0:
            return [Fail(self._task, _TOO_LONG)]
        return [*([Artifact(self._task, said)] if said else ()), Complete(self._task)]

    def _of_message(self, said: str) -> list[Said]:
        if self._left < 0:
            said = _TOO_LONG
        if said and self._wanted:
            return [Reply(self._message, said)]
        return [*(Output(line) for line in self._lines), Seen(self._message)]

    def _failed(self, end: End) -> list[Said]:
        if not self._task:
            return []  # the message is handed over again
        stderr = printable(end.stderr).strip()[-MAX_STDERR:]
        return [Fail(self._task, ": ".join(filter(None, (f"exit code {end.exit_code}", stderr))))]

    def render(self, message: Incoming) -> bytes:
        """The text of a message or a post, without control characters."""
        if not message.to.startswith("#"):
            self._message = message.id
            # Two programs that answer each other's answers would never end.
            self._wanted = message.expects_reply or not message.reply_to
        return _text(_said(message.text, message.parts))

    def render_task(self, task: IncomingTask) -> bytes:
        """The text of the request; with a history, all of it, each message after the name of its author."""
        self._task = task.id
        if not task.history:
            return _text(_said(task.text, task.parts))
        names = {"user": _address(task.sender), "agent": "you"}
        said = [
            f"{names[heard.role]}: {CONTINUATION.join(_lines(heard.text, heard.parts))}"
            for heard in task.history
        ]
        return _text("\n\n".join(said))

    def render_control(self, record: Mapping[str, Any]) -> bytes:  # noqa: ARG002
        """Nothing: the program could not tell it from its request."""
        return b""


def run_environment(incoming: Incoming | IncomingTask) -> dict[str, str]:
    """The variables that describe a run's request; those that do not apply are empty.

    `POSTROOM_TASK` keeps `postroom-agent` from reporting on another run's task.
    """
    about = {"POSTROOM_TASK": "", "POSTROOM_MESSAGE": "", "POSTROOM_ATTEMPT": ""}
    if isinstance(incoming, IncomingTask):
        about |= {"POSTROOM_TASK": incoming.id, "POSTROOM_ATTEMPT": str(incoming.attempt)}
    elif not incoming.to.startswith("#"):
        about["POSTROOM_MESSAGE"] = incoming.id
    return {"POSTROOM_FROM": _address(incoming.sender), **about}


def _address(sender: Sender) -> str:
    return f"@{one_line(sender.nick, 64)}" if sender.nick else sender.uid


def _said(text: str, parts: Parts) -> str:
    """The text, and a line for each part of another kind, such as `[image/png plot.png blob:sha256:…]`."""
    others = [_named(part) for part in parts if kind_of(part) != TEXT]
    return "\n".join(([text] if text or not others else []) + others)


def _lines(text: str, parts: Parts) -> list[str]:
    return printable(_said(text, parts)).splitlines()


def _named(part: Mapping[str, Any]) -> str:
    words = (media_type_of(part), name_in(part), str(part.get("url", "")))
    return f"[{' '.join(one_line(word, MAX_LINK) for word in words if word)}]"


def _text(text: str) -> bytes:
    body = printable(text).removesuffix("\n")
    return f"{body}\n".encode("utf-8", errors="replace")
