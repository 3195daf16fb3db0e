"""A chat: sends typed lines, prints what arrives, and ends in order."""

from __future__ import annotations

import queue
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from postroom.cli.chat.sources import Broken, CutLine, EndOfInput, Item, Line, Sources
from postroom.cli.output import report, terminal_width
from postroom.cli.prompt import LONGEST, Prompt
from postroom.cli.waiting import check
from postroom.client.answering import Answering
from postroom.client.http import Client
from postroom.client.stream import Event, EventStream
from postroom.client.targets import ChatTarget
from postroom.client.wire import done
from postroom.errors import (
    CallerError,
    InvalidInput,
    MessageTooLarge,
    NotFound,
    PostroomError,
    Refused,
)
from postroom.lines.happenings import activity_hint, activity_line
from postroom.lines.rows import painted
from postroom.lines.text import block, body_lines
from postroom.protocol.ids import MAX_ADDRESS
from postroom.protocol.receipts import RANK, State, is_final
from postroom.protocol.shapes import Mail, Milestone
from postroom.view.tasks import short
from postroom.view.words import clock, part_lines
from postroom_a2a.text import one_line

if TYPE_CHECKING:
    from postroom.client.answering import Ask

OWN = 1024
"""Messages whose ids are remembered, and own messages whose states are."""

_COLOURS = {"human": "green", "worker": "cyan", "external": "magenta", "service": "blue"}


@dataclass(slots=True)
class _Own:
    """A message from the person, and its state."""

    record: Any
    state: State = State.ACCEPTED
    reason: str = ""

    @property
    def final(self) -> bool:
        return is_final(self.state, expects_reply=bool(self.record.get("expects_reply")))

    @property
    def said(self) -> str:
        return f"· {self.state.value}" + (f": {one_line(self.reason, 200)}" if self.reason else "")


class Screen:
    """Prints posts, messages and receipts.

    Args:
        echoed: the terminal shows what the person types, so it is not printed again.
        receipts: print the receipts of own messages.
    """

    def __init__(self, me: str, *, echoed: bool, receipts: bool) -> None:
        self._me = me
        self._echoed = echoed
        self._receipts = receipts
        self._shown: deque[str] = deque(maxlen=OWN)
        self._own: dict[str, _Own] = {}

    def sent(self, record: Any) -> None:
        """Remember a line that the person has typed here, and show it where the terminal did not."""
        message_id = record["id"]
        if message_id in self._own:
            return
        self._own[message_id] = _Own(record)
        if len(self._own) > OWN:
            del self._own[next(iter(self._own))]
        if self._echoed and record["text"]:  # of a file only its path was typed
            self._shown.append(message_id)
        self.show(record)

    def is_to_me(self, record: Any) -> bool:
        """Whether `record` is a message to the person; a post is not."""
        return "to" in record and record["to"]["uid"] == self._me

    def show(self, record: Any) -> bool:
        """Print a post or message once; returns whether it was printed."""
        if record["id"] in self._shown:
            return False
        self._shown.append(record["id"])
        if record.get("reply_to"):
            self.receipt(record["reply_to"], State.ANSWERED.value, "")
        self._line(record)
        return True

    def happened(self, line: str) -> None:
        """Print what is no message."""
        click.echo(line)
        sys.stdout.flush()

    def receipt(self, message_id: str, state: str, reason: str) -> None:
        """Print the new state of an own message, if it is a final one."""
        own = self._own.get(message_id)
        if own is None or not self._receipts or state not in set(State):
            return
        reached = State(state)
        if RANK[reached] <= RANK[own.state]:
            return
        own.state, own.reason = reached, reason
        if own.final:
            colour = "red" if reached is State.DEAD else None
            click.echo(click.style(f"    {own.said}", dim=True, fg=colour))

    def _line(self, record: Any) -> None:
        sender = record["from"]
        mine = sender["uid"] == self._me
        colour = _COLOURS.get(sender.get("kind", ""))
        name = click.style(f"[{self._nick(record)}]", fg=colour, bold=mine or None)
        when = click.style(self._when(record), dim=True)
        head = f"{when} {name}"
        if record["text"] and not record.get("subject"):
            head = block(f"{head} ", record["text"])
            lines = [f"    {line}" for line in part_lines(record)]
        else:
            lines = body_lines(record)
        click.echo("\n".join([head, *lines]))
        sys.stdout.flush()

    def _when(self, record: Any) -> str:
        return clock(record.get("at") or record["sent_at"], time.time())

    def _nick(self, record: Any) -> str:
        sender = record["from"]
        return one_line(str(sender.get("nick") or sender["uid"]), MAX_ADDRESS)


Say = Callable[[str], None]


class Commands:
    """Carries out the commands of one chat."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._answering = Answering(client, channel="chat", report=report)
        self._offered: dict[str, str] = {}

    def ask_by(self, ask: Ask) -> None:
        """Have the person asked so for their PIN."""
        self._answering.ask = ask

    def offer(self, record: Any, say: Say) -> None:
        """Show how to answer what is asked; of an approval also what exactly is to be allowed."""
        if not (hint := activity_hint(record)):
            return
        if record["approval"]:
            try:
                asked = self._client.approval(record["approval"], worker=record["worker"]["uid"])
            except NotFound:
                return
            if asked["state"] != "pending":
                return
            self._offered[asked["id"]] = asked["worker"]["uid"]
            for row in self._answering.rows(asked):
                for line in painted(row, terminal_width()):
                    say(line)
        say(click.style(hint, dim=True))

    def done(self, text: str, say: Say) -> bool:
        """Carry out `text` if it is a command; raises PostroomError."""
        word, _, rest = text.strip().partition(" ")
        match word:
            case "/approve" | "/deny":
                ref, _, reason = rest.strip().partition(" ")
                if not ref:
                    raise InvalidInput(f"{word} needs the id of what is asked")
                asked = self._client.approval(ref, worker=self._worker_of(ref))
                decision = "allowed" if word == "/approve" else "denied"
                say(f"    {self._answering.decide(asked, decision, reason.strip())}")
            case "/all":
                asked = self._client.approval(rest.strip(), worker=self._worker_of(rest.strip()))
                say(f"    {self._answering.free(asked['worker']['uid'], asked['task'])}")
            case "/answer":
                ref, _, answer = rest.strip().partition(" ")
                if not ref or not answer.strip():
                    raise InvalidInput("/answer needs the id of a task and the text")
                task = self._client.answer_task(ref, answer.strip())
                say(f"    {short(task['id'])} answered")
            case _:
                return False
        return True

    def _worker_of(self, ref: str) -> str:
        """The worker that asked it here, "" for what was not shown here."""
        found = {uid for request, uid in self._offered.items() if request.startswith(ref)}
        return found.pop() if len(found) == 1 else ""


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
        with Sources(
            EventStream.over(self._target.follow(after)), descriptor, self._prompt
        ) as sources:
            self._commands.ask_by(sources.secret)
            self._talk(sources, ending.milestone is not None)
            if ending.milestone is not None:
                self._settle(sources, ending.milestone, ending.timeout)
            self._linger(sources, ending.linger)

    def _show_history(self, limit: int) -> int:
        """Print the history; returns the stream sequence after which the live part begins."""
        records = done(self._target.history(max(1, limit)))  # at least one, to know the sequence
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
                parts = [self._upload(text.removeprefix(FILE).strip())]
                record = done(self._target.send("", parts))
            else:
                record = done(self._target.send(text))
        except (CallerError, Refused) as error:
            if not self._typed:
                raise
            report(error)
            return
        self._screen.sent(record)
        if note := one_line(record.get("note", "")):
            self._screen.happened(note) if self._typed else click.echo(note, err=True)
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
        self._screen.happened(activity_line(record, terminal_width()))
        if self._typed:
            self._commands.offer(record, self._screen.happened)

    def _show(self, record: Any) -> None:
        """Print a record; a message to the person then counts as seen."""
        if "what" in record:
            self._screen.happened(activity_line(record, terminal_width()))
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
