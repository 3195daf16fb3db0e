"""What the adapters of coding agents share: lines of JSON out of bytes, and turns that always end. Pure.

An adapter is a subclass that says what one record means (`read`). This class keeps the promises of
`turns.TurnAdapter`: nothing raises, no line is lost for a bad one before it, each turn has exactly one RESULT, and no
tool call or request is left open after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from postroom.protocol.events import EventKind
from postroom.protocol.limits import MAX_TURN_LINE_BYTES
from postroom.sidecar.adapters.adapter import End
from postroom.sidecar.adapters.loose import Record, record_in
from postroom.sidecar.adapters.turns import Answer, Asked, Event, Setup, TurnSaid, Withdrawn
from postroom.sidecar.lines import LineReader, Overlong
from postroom_a2a.text import printable

MAX_LAST_WORDS = 2000
"""Characters of standard error in the reason of a failed turn."""

MAX_ANSWER = 1024 * 1024
"""Characters of the last text that become a result's where the agent says none."""


MAX_OPEN = 1000
"""Tool calls, and requests, that are open at a time: over it, the oldest counts as ended."""


class TurnLines:
    """One run of a program that prints lines of JSON.

    Attributes:
        resident, session: as in `TurnAdapter`.
        unread: lines of types that the adapter does not know; each is an event RAW.
    """

    resident = True

    def __init__(self, setup: Setup, *, cap: int = MAX_TURN_LINE_BYTES) -> None:
        self.setup = setup
        self.session = setup.session
        self.unread = 0
        self._cap = cap
        self._lines = LineReader(cap)
        self._working = False
        self._calls: dict[str, None] = {}
        self._asked: dict[str, Asked] = {}
        self._last_text = ""
        self._error = ""

    # ── What a subclass says ──

    def read(self, record: Record, raw: str) -> Iterable[TurnSaid]:
        """What one record means; `raw` is its line. It may have any fields of any kinds."""
        raise NotImplementedError

    def rest(self) -> Iterable[TurnSaid]:
        """What was only begun to be said when a turn or the program ends."""
        return ()

    def ended_well(self, end: End) -> bool:
        """Whether an end without a result and without an error means that the turn is completed."""
        return not self.resident and not end.exit_code

    def answered(self, asked: Asked, answer: Answer) -> bytes:
        """The program's stdin for the answer to a request that is open."""
        raise NotImplementedError

    # ── TurnAdapter ──

    def files(self) -> Mapping[str, str]:
        """None."""
        return {}

    def environment(self) -> Mapping[str, str]:
        """None."""
        return {}

    def command(self, prompt: str = "") -> tuple[str, ...]:  # noqa: ARG002
        """The template's."""
        return self.setup.command

    def begin(self) -> bytes:
        """Nothing."""
        return b""

    def answer(self, request: str, answer: Answer) -> bytes:
        """See `TurnAdapter`."""
        asked = self._asked.pop(request, None)
        return b"" if asked is None else self.answered(asked, answer)

    def feed(self, data: bytes) -> list[TurnSaid]:
        """See `TurnAdapter`."""
        said: list[TurnSaid] = []
        for line in self._lines.feed(data):
            self._take(line, said)
        return said

    def finish(self, end: End) -> list[TurnSaid]:
        """See `TurnAdapter`."""
        said: list[TurnSaid] = []
        for line in self._lines.finish():
            self._take(line, said)
        if self._working:
            self._keep(self._result_of(end), said)
        else:
            self._close(said)
        return said

    # ── For subclasses ──

    @property
    def working(self) -> bool:
        """Whether a turn is open."""
        return self._working

    def calling(self, call: str) -> bool:
        """Whether a tool call with that id is open."""
        return call in self._calls

    def start_turn(self) -> None:
        """Mark the begin of a turn: from here on exactly one RESULT is due."""
        self._working = True
        self._last_text = self._error = ""

    def unknown(self, raw: str) -> Event:
        """The event for a record of a type that the adapter does not know."""
        self.unread += 1
        return Event(EventKind.RAW, raw=raw)

    def open_request(self, request: str) -> Asked | None:
        """The request with that id if it waits for its answer."""
        return self._asked.get(request)

    # ── Inside ──

    def _take(self, line: str | Overlong, said: list[TurnSaid]) -> None:
        if isinstance(line, Overlong):
            said.append(self._overlong(line))
        elif line and not line.isspace():
            record = record_in(line)
            if record is None:
                said.append(Event(EventKind.TEXT, {"text": printable(line)}, line))
            else:
                for item in self.read(record, line):
                    self._keep(item, said)

    def _overlong(self, line: Overlong) -> Event:
        text = f"a line of more than {self._cap} bytes was skipped: {printable(line.prefix)}"
        return Event(EventKind.ERROR, {"text": text, "code": "overlong"}, line.prefix)

    def _keep(self, item: TurnSaid, said: list[TurnSaid]) -> None:
        """Add an item, and what the promises demand before it."""
        if isinstance(item, Event):
            self._keep_event(item, said)
        elif isinstance(item, Asked):
            if len(self._asked) >= MAX_OPEN:
                self._keep(Withdrawn(next(iter(self._asked))), said)
            self._asked[item.request] = item
            said.append(item)
        elif not isinstance(item, Withdrawn) or self._asked.pop(item.request, None) is not None:
            said.append(item)

    def _keep_event(self, event: Event, said: list[TurnSaid]) -> None:
        kind = event.kind
        if kind is EventKind.TEXT:
            self._heard(event.fields)
        elif kind is EventKind.TOOL_CALL:
            if len(self._calls) >= MAX_OPEN:
                self._keep(_interrupted(next(iter(self._calls))), said)
            self._calls[event.fields["call"]] = None
        elif kind is EventKind.TOOL_RESULT:
            self._calls.pop(event.fields["call"], None)
        elif kind is EventKind.ERROR and event.fields.get("fatal"):
            self._error = str(event.fields.get("text", ""))
        elif kind is EventKind.RESULT:
            self._end_turn(event, said)
            return
        said.append(event)

    def _heard(self, fields: Mapping[str, Any]) -> None:
        if "parent" in fields:  # a sub-agent's text is for the agent
            return
        before = self._last_text if fields.get("delta") else ""
        self._last_text = (before + fields["text"])[:MAX_ANSWER]

    def _end_turn(self, event: Event, said: list[TurnSaid]) -> None:
        """The result of the open turn; one that no turn is due becomes an event RAW."""
        if not self._working:
            said.append(self.unknown(event.raw))
            return
        self._close(said)
        if "text" not in event.fields:
            event = Event(event.kind, {**event.fields, "text": self._last_text}, event.raw)
        self._working = False
        said.append(event)

    def _close(self, said: list[TurnSaid]) -> None:
        """End what is open."""
        for item in self.rest():
            self._keep(item, said)
        said.extend(Withdrawn(request) for request in self._asked)
        self._asked.clear()
        said.extend(_interrupted(call) for call in self._calls)
        self._calls.clear()

    def _result_of(self, end: End) -> Event:
        """The result of a turn whose program ended without saying one."""
        if self._error:
            return _result("failed", self._error)
        if end.signalled:
            return _result("interrupted", "the program was stopped")
        if end.signal:
            return _result("failed", f"the program was killed by signal {end.signal}")
        if self.ended_well(end):
            return _result("completed")
        words = printable(end.stderr).strip()[-MAX_LAST_WORDS:]
        return _result("failed", ": ".join(filter(None, (f"exit code {end.exit_code}", words))))


def _interrupted(call: str) -> Event:
    return Event(EventKind.TOOL_RESULT, {"call": call, "status": "interrupted", "output": ""})


def _result(status: str, reason: str = "") -> Event:
    return Event(EventKind.RESULT, {"status": status} | ({"reason": reason} if reason else {}))


class Meter:
    """Turns the running totals that an agent reports into what was used since the report before."""

    def __init__(self) -> None:
        self._last: dict[str, float] = {}

    @property
    def begun(self) -> bool:
        """Whether totals were reported before."""
        return bool(self._last)

    def since(self, totals: Mapping[str, float]) -> dict[str, float]:
        """The differences that are not 0; a total that went down was begun anew."""
        used = {}
        for name, total in totals.items():
            before = self._last.get(name, 0)
            if difference := total - before if total >= before else total:
                used[name] = difference
        self._last.update(totals)
        return used


def usage(used: Mapping[str, float], raw: str = "") -> list[Event]:
    """The event for what was used; none for nothing.

    Input tokens have the cached ones among them, output tokens those of reasoning.
    """
    if not used:
        return []
    return [Event(EventKind.USAGE, {"input_tokens": 0, "output_tokens": 0, **used}, raw)]
