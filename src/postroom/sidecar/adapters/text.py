"""Adapter `text`: for programs that read a text and print a text, and know nothing of Postroom.

One run of the program is about one message or one task: the request is its standard input up to the end, and what it
prints up to its own end is the answer. So a request and an answer have as many lines as they like, and no answer can be
taken for that to another request.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from postroom.protocol.limits import MAX_TEXT_ANSWER
from postroom.protocol.verbs import Artifact, Complete, Fail, Reply, Seen
from postroom.sidecar.adapters.adapter import End, Incoming, IncomingTask, Output, Said, Sender
from postroom_a2a.text import one_line, printable

MAX_COMPLAINT = 2000
"""Characters of standard error that a failed task shows."""

CONTINUATION = "\n    "

_TOO_LONG = (
    f"the answer has more than {MAX_TEXT_ANSWER // 1024} KiB; try: postroom-agent artifact --file"
)


class PlainText:
    """The adapter of one run, which is about one message, post or task."""

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
        """Nothing yet; there will be no answer that is whole."""
        self._left = -1
        return []

    def finish(self, end: End) -> list[Said]:
        """The answer, if the program ended well.

        Of a run that was ended by a signal nothing is taken: nobody knows whether it had said all that it had to say.
        """
        said = printable("\n".join(self._lines)).rstrip().lstrip("\n")
        if end.told or end.signal or not (self._task or self._message):
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
        complaint = printable(end.complaint).strip()[-MAX_COMPLAINT:]
        return [
            Fail(self._task, ": ".join(filter(None, (f"exit code {end.exit_code}", complaint))))
        ]

    def render(self, message: Incoming) -> bytes:
        """The text of a message or a post, with every control character taken out."""
        if not message.to.startswith("#"):
            self._message = message.id
            # Two programs that answer each other's answers would never end.
            self._wanted = message.expects_reply or not message.reply_to
        return _text(message.text)

    def render_task(self, task: IncomingTask) -> bytes:
        """The text of the request; where more was said, all of it, with who said it before each piece."""
        self._task = task.id
        if not task.history:
            return _text(task.text)
        names = {"user": _address(task.sender), "agent": "you"}
        said = [
            f"{names[role]}: {CONTINUATION.join(printable(text).splitlines())}"
            for role, text in task.history
        ]
        return _text("\n\n".join(said))

    def render_control(self, record: Mapping[str, Any]) -> bytes:  # noqa: ARG002
        """Nothing: the program has no way to tell it from its request."""
        return b""


def run_environment(incoming: Incoming | IncomingTask) -> dict[str, str]:
    """What a run is told of its request beside the text. A variable that says nothing is there, too, and empty.

    `POSTROOM_TASK` is what keeps `postroom-agent` from speaking of another run's task.
    """
    about = {"POSTROOM_TASK": "", "POSTROOM_MESSAGE": "", "POSTROOM_ATTEMPT": ""}
    if isinstance(incoming, IncomingTask):
        about |= {"POSTROOM_TASK": incoming.id, "POSTROOM_ATTEMPT": str(incoming.attempt)}
    elif not incoming.to.startswith("#"):
        about["POSTROOM_MESSAGE"] = incoming.id
    return {"POSTROOM_FROM": _address(incoming.sender), **about}


def _address(sender: Sender) -> str:
    return f"@{one_line(sender.nick, 64)}" if sender.nick else sender.uid


def _text(text: str) -> bytes:
    body = printable(text).removesuffix("\n")
    return f"{body}\n".encode("utf-8", errors="replace")
