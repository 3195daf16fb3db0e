"""The main loop of a chat: sends typed lines, prints what arrives, and ends in order."""

from __future__ import annotations

import queue
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from postroom.cli.chat.commands import Commands
from postroom.cli.chat.prompt import LONGEST, Prompt
from postroom.cli.chat.screen import Screen
from postroom.cli.chat.sources import Broken, CutLine, EndOfInput, Item, Line, Sources
from postroom.cli.output import terminal_width
from postroom.cli.root import report
from postroom.cli.waiting import check
from postroom.client.http import Client
from postroom.client.stream import Event
from postroom.client.targets import ChatTarget
from postroom.errors import CallerError, MessageTooLarge, PostroomError, Refused
from postroom.protocol.shapes import Mail, Milestone
from postroom.view.happenings import line_of

UNREAD = frozenset({"accepted", "delivered"})

FILE = "/file "
"""Beginning of a typed line that sends a file. From a pipe it is a line like any other: a program that writes there
must not be able to send a person's files.
"""

_CUT = MessageTooLarge(
    f"not sent: a terminal takes no line over {LONGEST - 1} bytes",
    remedy="postroom send TO < FILE",
)


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of a chat, after the end of the input.

    Attributes:
        milestone: wait until all sent messages have reached it, None for no wait.
        timeout: seconds for that.
        linger: seconds to go on showing what arrives.
    """

    milestone: Milestone | None
    timeout: float
    linger: float


class Conversation:
    """One chat from its start to its end, in the main thread.

    Args:
        typed: the input is a terminal, so a refused line is reported and does not end the chat.
        prompt: where lines are edited, None where they come as they are.
    """

    def __init__(
        self,
        client: Client,
        target: ChatTarget,
        screen: Screen,
        *,
        typed: bool,
        prompt: Prompt | None = None,
    ) -> None:
        self._client = client
        self._target = target
        self._screen = screen
        self._typed = typed
        self._prompt = prompt
        self._commands = Commands(client)
        self._sent: list[str] = []

    def run(self, history: int, ending: Ending) -> None:
        """Show `history` earlier messages, then talk until the end of the input.

        Raises:
            PostroomError: a line could not be sent, the post room has gone, or (see `Ending`) a message has
                died or is late.
        """
        after = self._show_history(history)
        descriptor = -1 if sys.stdin is None else sys.stdin.fileno()
        with Sources(self._target.follow(after), descriptor, self._prompt) as sources:
            self._commands.ask_by(sources.secret)
            self._talk(sources, ending.milestone is not None)
            if ending.milestone is not None:
                self._settle(sources, ending.milestone, ending.timeout)
            self._linger(sources, ending.linger)

    def _show_history(self, limit: int) -> int:
        """Print the history; returns the stream sequence after which the live part begins."""
        records = self._target.history(max(1, limit))  # at least one, to know the sequence
        if limit:
            for record in records:
                self._show(record)
        return max((record.get("seq", 0) for record in records), default=0)

    def _talk(self, sources: Sources, remember: bool) -> None:
        while not isinstance(item := sources.get(), EndOfInput):
            if isinstance(item, Line):
                self._send(item.text, remember)
            elif isinstance(item, CutLine):
                report(_CUT)
            else:
                self._take(item)

    def _send(self, text: str, remember: bool) -> None:
        if not text.strip():
            return
        try:
            if self._typed and self._commands.done(text, self._screen.happened):
                return
            if self._typed and text.startswith(FILE):
                record = self._target.send("", [self._upload(text.removeprefix(FILE).strip())])
            else:
                record = self._target.send(text)
        except (CallerError, Refused) as error:
            if not self._typed:
                raise
            report(error)
            return
        self._screen.sent(record)
        if remember:
            self._sent.append(record["id"])

    def _upload(self, path: str) -> dict[str, Any]:
        from postroom.cli.content import upload

        return upload(self._client, str(Path(path).expanduser()))

    def _take(self, item: Item) -> None:
        """Print an item, or raise its error."""
        if isinstance(item, Broken):
            raise item.error
        if not isinstance(item, Event):
            return
        if item.kind == "receipt":
            message_id = item.data.get("message_id") or item.data.get("id", "")
            self._screen.receipt(
                str(message_id), str(item.data.get("state", "")), str(item.data.get("reason") or "")
            )
        elif item.kind == "activity":
            self._happened(item.data)
        elif item.kind in ("post", "mail"):
            self._show(item.data)

    def _happened(self, record: Any) -> None:
        """Print what happened beside the posts, and how to answer what is asked."""
        self._screen.happened(line_of(record, terminal_width()))
        if self._typed:
            self._commands.offer(record, self._screen.happened)

    def _show(self, record: Any) -> None:
        """Print a record; a message to the person then counts as seen."""
        if "what" in record:
            self._screen.happened(line_of(record, terminal_width()))
            return
        if not self._screen.show(record) or not self._screen.is_to_me(record):
            return
        self._target.heard(record)
        if record["state"] in UNREAD:
            try:
                self._client.mark_seen(record["id"])
            except PostroomError as error:
                report(error)  # it stays unread and is shown again next time

    def _settle(self, sources: Sources, milestone: Milestone, timeout: float) -> None:
        """Wait for the receipts of all sent messages."""
        deadline = time.monotonic() + timeout
        for message_id in self._sent:
            left = max(0.0, deadline - time.monotonic())
            mail: Mail = self._client.wait(message_id, milestone, left)
            for item in sources.waiting():
                self._take(item)
            if milestone == "answered" and mail["answer"]:
                self._show(mail["answer"])
            check(mail, milestone, timeout)

    def _linger(self, sources: Sources, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            try:
                self._take(sources.get(left))
            except queue.Empty:
                return
