"""Adapter `text`: for programs that read a text and print a text, and know nothing of Postroom.

One run of the program handles one message or one task: the request is its whole standard input, and its whole output
is the answer. So both may have any number of lines, and every answer belongs to its request.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from postroom.protocol.limits import MAX_TEXT_ANSWER
from postroom.protocol.parts import whole_text
from postroom.protocol.traces import VARIABLE
from postroom.protocol.verbs import Seen
from postroom.sidecar.adapters.adapter import (
    End,
    Incoming,
    IncomingTask,
    Output,
    Parts,
    Said,
    overlong,
)
from postroom.sidecar.adapters.wording import (
    Request,
    address,
    answered,
    failed,
    is_post,
)
from postroom.sidecar.lines import LineReader, Overlong
from postroom_a2a.text import printable

MAX_STDERR = 2000
"""Characters of standard error in a failed task."""

CONTINUATION = "\n    "

_TOO_LONG = (
    f"the answer has more than {MAX_TEXT_ANSWER // 1024} KiB; try: postroom-agent artifact --file"
)


class PlainText:
    """The adapter of one run, for one message, post or task."""

    def __init__(self) -> None:
        self._request: Request | None = None
        self._reader = LineReader()
        self._lines: list[str] = []
        self._left = MAX_TEXT_ANSWER

    def feed(self, data: bytes) -> list[Said]:
        """Nothing yet, its lines are parts of the answer; one that is too long goes to the log."""
        return [said for line in self._reader.feed(data) for said in self._keep(line)]

    def finish(self, end: End) -> list[Said]:
        """The answer, if the program ended well.

        A run that a signal ended gives no answer: its output may be incomplete.
        """
        for line in self._reader.finish():
            self._keep(line)
        request, output = self._request, [Output(line) for line in self._lines]
        if end.signalled or end.signal or request is None or is_post(request):
            return [*output]
        if end.exit_code:
            stderr = printable(end.stderr).strip()[-MAX_STDERR:]
            why = ": ".join(filter(None, (f"exit code {end.exit_code}", stderr)))
            return [*failed(request, why), *output]
        if self._left < 0:
            return failed(request, _TOO_LONG) or answered(request, _TOO_LONG)
        said = answered(request, printable("\n".join(self._lines)).rstrip().lstrip("\n"))
        return [*output, *said] if isinstance(said[0], Seen) else said

    def _keep(self, line: str | Overlong) -> list[Said]:
        if isinstance(line, Overlong):
            self._left = -1  # the answer would be incomplete
            return [overlong(line)]
        self._left -= len(line.encode(errors="replace")) + 1
        if self._left >= 0:
            self._lines.append(line)
        return []

    def render(self, message: Incoming) -> bytes:
        """The text of a message or a post, without control characters."""
        self._request = message
        return _text(whole_text(message.text, message.parts))

    def render_task(self, task: IncomingTask) -> bytes:
        """The text of the request; with a history, all of it, each message after the name of its author."""
        self._request = task
        if not task.history:
            return _text(whole_text(task.text, task.parts))
        names = {"user": address(task.sender), "agent": "you"}
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
    if incoming.trace:
        about[VARIABLE] = incoming.trace
    return {"POSTROOM_FROM": address(incoming.sender), **about}


def _lines(text: str, parts: Parts) -> list[str]:
    return printable(whole_text(text, parts)).splitlines()


def _text(text: str) -> bytes:
    body = printable(text).removesuffix("\n")
    return f"{body}\n".encode("utf-8", errors="replace")
