"""A person at the side of one worker: what its agent does comes by, and what the person types goes to it.

A typed line is a message to the worker, unless something that the agent asks waits for an answer here.
"""

from __future__ import annotations

import json
import queue
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import click

from postroom.cli.chat.sources import Broken, CutLine, EndOfInput, Line, Sources
from postroom.cli.deciding import asked as asked_here
from postroom.cli.deciding import edited
from postroom.cli.output import report, terminal_width
from postroom.client.answering import Answering
from postroom.client.stream import Event
from postroom.errors import (
    CallerError,
    Conflict,
    InvalidInput,
    MessageTooLarge,
    NotFound,
    PostroomError,
    Refused,
)
from postroom.lines.approvals import always_hint
from postroom.lines.events import EventRows, request_rows
from postroom.lines.rows import Row, Style, painted
from postroom.protocol.approvals import Decision, check_editable
from postroom.protocol.events import EventKind
from postroom.view.tasks import short
from postroom.view.words import address
from postroom_a2a.text import one_line

if TYPE_CHECKING:
    from postroom.cli.prompt import Prompt
    from postroom.client.http import Client
    from postroom.client.stream import WorkerEvents
    from postroom.protocol.shapes import Approval, Worker

QUIET = 1.0
"""Seconds after which a line is shown that has no end yet."""

OPEN = 32
"""Requests that may wait for an answer here."""

HINT = "  y: allow   n [reason]: deny{edit}{all}   (other lines are messages)"
QUESTION_HINT = "  type the answer"


class Feed:
    """The live events as `Sources` takes them."""

    def __init__(self, events: WorkerEvents) -> None:
        self._events = events

    def __iter__(self) -> Iterator[Event]:
        for event in self._events:
            yield Event(str(event["id"]), "event", event)

    def close(self) -> None:
        """End the iteration, from any thread."""
        self._events.close()


class View:
    """Prints the events of one worker.

    Args:
        as_json: a JSON object per line, as the API has it.
    """

    def __init__(self, worker: Worker, *, as_json: bool) -> None:
        self._worker = worker
        self._rows = EventRows(one_line(worker["nick"]))
        self._as_json = as_json

    def begin(self) -> None:
        """Print whom one is attached to."""
        if self._as_json:
            return
        worker = self._worker
        task = worker.get("task")
        at = f", task {short(task['id'])}: {one_line(task['text'], 80)}" if task else ""
        template = one_line(worker["template"].rpartition("/")[2])
        about = ", ".join(each for each in (template, one_line(worker["state"])) if each)
        self._print([Row.of(f"── @{worker['nick']} ({about}){at}", Style.STRONG)])

    def show(self, event: Mapping[str, Any]) -> None:
        """Print an event."""
        if self._as_json:
            click.echo(json.dumps(event, ensure_ascii=True))
        else:
            self._print(self._rows.of(event))

    def quiet(self) -> None:
        """Print what has no end of line yet: nothing comes for a while."""
        if not self._as_json:
            self._print(self._rows.pause())

    def say(self, text: str, style: Style = Style.DIM) -> None:
        """Print a line of ours."""
        self._print([Row.of(text, style, wraps=True)])

    def rows(self, rows: Sequence[Row]) -> None:
        """Print rows of ours."""
        if not self._as_json:
            self._print(rows)

    def _print(self, rows: Sequence[Row]) -> None:
        width = terminal_width()
        for row in rows:
            for line in painted(row, width):
                click.echo(line)


class Session:
    """One `attach`, in the main thread.

    Args:
        follow: the live events past an id.
        descriptor: of the person's input, -1 where nobody is there to answer.
        prompt: edits lines, None where they come as they are.
    """

    def __init__(
        self,
        client: Client,
        worker: Worker,
        view: View,
        follow: Callable[[int], WorkerEvents],
        *,
        descriptor: int,
        prompt: Prompt | None = None,
    ) -> None:
        self._client = client
        self._worker = worker
        self._view = view
        self._follow = follow
        self._descriptor = descriptor
        self._prompt = prompt
        self._answering = Answering(client, channel="attach", report=report)
        self._open: OrderedDict[str, None] = OrderedDict()
        self._after = 0
        self._said_open = ""
        """id of the request that a typed line answers: it stands right above the last hint"""
        self._asking: Mapping[str, Any] = {}
        """the request that was shown last; the worker may say something else in it than in the one that it repeats"""

    def run(self, past: Iterator[Any], after: int) -> None:
        """Show the events of `past`, then what comes past the last of them or past `after`.

        Raises:
            PostroomError: the post room has gone for good.
        """
        self._after = after
        for event in past:
            self._take(event)
        self._offer()
        while self._talk():
            self._edit()

    def _talk(self) -> bool:
        """Until the end of the input (False), or until something is to be edited (True)."""
        feed = Feed(self._follow(self._after))
        quiet = False
        with (
            self._prompt or nullcontext(),
            Sources(feed, self._descriptor, self._prompt) as sources,
        ):
            self._answering.ask = sources.secret
            while True:
                try:
                    item = sources.get(None if quiet else QUIET)
                except queue.Empty:
                    self._view.quiet()
                    quiet = True
                    continue
                quiet = False
                match item:
                    case EndOfInput():
                        if self._descriptor >= 0:
                            return False
                    case Line(text=text):
                        if self._typed(text.strip()):
                            return True
                    case CutLine():
                        report(MessageTooLarge("not sent: a terminal takes no longer line"))
                    case Broken(error=error):
                        raise error
                    case Event(data=event):
                        self._take(event)
                        self._offer()

    # ── what comes ──

    def _take(self, event: Mapping[str, Any]) -> None:
        self._after = max(self._after, event["id"])
        self._view.show(event)
        request = str(event.get("request") or "")
        match event.get("type"):
            case EventKind.CONTROL_REQUEST if request:
                self._open[request] = None
                self._said_open, self._asking = "", event
                while len(self._open) > OPEN:
                    self._open.popitem(last=False)
            case EventKind.CONTROL_RESPONSE:
                self._open.pop(request, None)

    def _offer(self) -> None:
        """Say how the first open request is answered, once."""
        if self._descriptor < 0:
            return
        asked = self._asked()
        if asked is not None and asked["id"] != self._said_open:
            self._said_open = asked["id"]
            rows = self._answering.rows(asked)
            if rows != request_rows(address(asked["worker"]), self._asking):
                self._view.rows(rows)
            self._asking = {}
            edit = "   e: edit" if asked.get("editable", True) else ""
            every = "   A: all until this task ends" if asked["task"] else ""
            if asked["kind"] == "question":
                self._view.say(QUESTION_HINT)
            else:
                self._view.say(HINT.format(edit=edit, all=every))
                self._view.say(f"  {always_hint(asked)}")

    def _asked(self) -> Approval | None:
        """The first request that is open, as the post room has it."""
        while self._open:
            request = next(iter(self._open))
            try:
                asked = self._client.approval(request, worker=self._worker["uid"])
            except NotFound:
                asked = None
            if asked is not None and asked["state"] == Decision.PENDING:
                return asked
            del self._open[request]
        return None

    # ── what is typed ──

    def _typed(self, text: str) -> bool:
        """Carry out a typed line; True if something is to be edited."""
        if not text:
            return False
        try:
            return self._done(text)
        except Conflict as error:
            self._view.say(f"  {error.message}")
        except (CallerError, Refused) as error:
            report(error)
        return False

    def _done(self, text: str) -> bool:
        word, _, rest = text.partition(" ")
        if word == "/interrupt":
            self._client.interrupt(self._worker["uid"], reason=rest.strip(), channel="attach")
            return False
        if word.startswith("/"):
            raise InvalidInput(f"{one_line(word, 20)} is unknown", remedy="/interrupt [REASON]")
        asked = self._asked()
        if asked is None:
            self._send(text)
        elif asked["id"] != self._said_open:
            self._view.say("  not sent: something else waits for an answer now")
            self._offer()
        elif asked["kind"] == "question":
            self._view.say(f"  {self._answering.say(asked, text)}")
        elif word in ("y", "yes") and not rest:
            self._answering.decide(asked, Decision.ALLOWED.value)
        elif word in ("n", "no"):
            self._answering.decide(asked, Decision.DENIED.value, rest.strip())
        elif text == "a":
            self._view.say(f"  {self._answering.always(asked)}")
        elif text == "A":
            self._view.say(f"  {self._answering.free(self._worker['uid'], asked['task'])}")
        elif text == "e":
            check_editable(asked)
            return True
        else:
            self._send(text)
        return False

    def _send(self, text: str) -> None:
        self._client.send(self._worker["uid"], text, expects_reply=True)

    def _edit(self) -> None:
        """Have the person edit the input of the open request, and allow that."""
        self._answering.ask = asked_here  # nothing else reads the terminal now
        asked = self._asked()
        if asked is None or asked["id"] != self._said_open:
            self._view.say("  that waits for no answer any more")
            return
        try:
            given = edited(asked)
            if given is None:
                self._view.say("  unchanged: nothing was answered")
                return
            self._answering.decide(asked, Decision.EDITED.value, given=given)
        except PostroomError as error:
            report(error)
