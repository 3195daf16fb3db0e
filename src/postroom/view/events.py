"""Events of a worker as rows, in their order; what one event needs of earlier ones is kept here. Pure."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any

from postroom.lines.rows import Row, Style
from postroom.protocol.events import EventKind
from postroom.view.event_parts import (
    CALLS,
    LONGEST,
    Turns,
    Used,
    call_body,
    call_head,
    call_name,
    ended_row,
    failed,
    other_rows,
    outcome_row,
    output_rows,
    request_rows,
    response_row,
    said_row,
    string,
)

OUTPUT = 6
"""Lines of a tool's output that are shown."""

CHANGED = 40
"""Lines of a change that are shown."""


class EventRows:
    """Makes rows of one worker's events.

    Args:
        nick: of the worker.
        compact: one row for each call and for a result that failed, no thoughts: for who waits for a task.
        requests: show what the agent asks and how it was decided; not where somebody else shows that.
    """

    def __init__(self, nick: str, *, compact: bool = False, requests: bool = True) -> None:
        self._name = f"@{nick}"
        self._compact = compact
        self._requests = requests
        self._said = _Said()
        self._calls: OrderedDict[str, str] = OrderedDict()
        self._last_call = ""
        self._turns, self._used = Turns(), Used()

    def of(self, event: Mapping[str, Any]) -> list[Row]:
        """The rows of the next event; a text that goes on in deltas gives its whole lines."""
        kind = str(event.get("type", ""))
        rows = list(self._turn_rows(event))
        if kind in (EventKind.TEXT, EventKind.THINKING):
            rows += self._text(kind, event)
            return rows
        rows += self.flush()
        match kind:
            case EventKind.TOOL_CALL:
                rows += self._call(event)
            case EventKind.TOOL_RESULT:
                rows += self._result(event)
            case EventKind.USAGE:
                self._used.count(event)
            case EventKind.RESULT:
                self._calls.clear()
                rows.append(ended_row(event, self._used.words()))
            case EventKind.CONTROL_REQUEST if self._requests:
                rows += request_rows(self._name, event)
            case EventKind.CONTROL_RESPONSE if self._requests:
                rows.append(response_row(event))
            case _:
                rows += other_rows(kind, event)
        return rows

    def flush(self) -> list[Row]:
        """The rest of a text that has no end of line yet."""
        return list(self._said.end())

    def pause(self) -> list[Row]:
        """The rest of a text that has no end of line yet, and may go on."""
        return list(self._said.rest())

    def _turn_rows(self, event: Mapping[str, Any]) -> Iterator[Row]:
        """A row where the agent begins with something else: what that is."""
        begins = self._turns.begins(event)
        if begins is None:
            return
        yield from self.flush()
        if not self._compact:
            yield begins

    def _text(self, kind: str, event: Mapping[str, Any]) -> list[Row]:
        thinking = kind == EventKind.THINKING
        text = string(event.get("text"))
        if thinking and self._compact:
            return []
        rows = list(self._said.begin(kind, goes_on=bool(event.get("delta"))))
        rows += self._said.more(text)
        if not event.get("delta"):
            rows += self._said.end()
        return rows

    def _call(self, event: Mapping[str, Any]) -> Iterator[Row]:
        self._last_call = call = string(event.get("call"))
        self._calls[call] = call_name(event)
        while len(self._calls) > CALLS:
            self._calls.popitem(last=False)
        yield call_head(event)
        if not self._compact:
            yield from call_body(event, lines=OUTPUT, changed=CHANGED)

    def _result(self, event: Mapping[str, Any]) -> Iterator[Row]:
        call = string(event.get("call"))
        named = self._calls.pop(call, "")
        bad = failed(event)
        if bad or not self._compact:
            if named and call != self._last_call:
                yield Row.of(f"  {named}:", Style.DIM)
            yield from output_rows(event, 1 if self._compact else OUTPUT)
        if bad:
            yield outcome_row(event)


class _Said:
    """The text that an agent says, in whole lines."""

    def __init__(self) -> None:
        self._kind = ""
        self._rest = ""
        self._first = True

    def begin(self, kind: str, *, goes_on: bool) -> Iterator[Row]:
        """A text of that kind begins, unless it goes on with the one before."""
        if kind != self._kind or not goes_on:
            yield from self.end()
            self._kind, self._first = kind, True

    def more(self, text: str) -> Iterator[Row]:
        """The lines that `text` completes."""
        *whole, self._rest = (self._rest + text.replace("\r\n", "\n").replace("\r", "\n")).split(
            "\n"
        )
        for line in whole:
            yield self._row(line)
        if len(self._rest) > LONGEST:
            yield self._row(self._rest)
            self._rest = ""

    def end(self) -> Iterator[Row]:
        """The line without an end, if there is one; the text ends here."""
        yield from self.rest()
        self._kind = ""

    def rest(self) -> Iterator[Row]:
        """The line without an end, if there is one."""
        rest, self._rest = self._rest, ""
        if rest.strip():
            yield self._row(rest)

    def _row(self, line: str) -> Row:
        row = said_row(self._kind, line, first=self._first)
        self._first = False
        return row
