"""Events of a worker as blocks of a log: a text that grows, a tool's call with its result, what was asked and decided.

The rows are those of the line mode (`lines.events`). What is past comes page by page, then what happens.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from postroom.errors import PostroomError
from postroom.lines.events import (
    CALLS,
    Turns,
    TurnUsage,
    call_body,
    call_head,
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
from postroom.lines.markdown import drawn
from postroom.lines.rows import Row, Span, Style
from postroom.protocol.events import EventKind
from postroom.tui.following import follow
from postroom.tui.rowlog.log import Block

if TYPE_CHECKING:
    from postroom.tui.news import Target
    from postroom.tui.port import ScreenPort

Event = Mapping[str, Any]

PIECE = 60
"""Rows of a text in one block: a block that grows is drawn anew as a whole."""

OUTPUT = 400
"""Lines of a tool's output, and of the changes that it makes, in its card."""

LONGEST = 4000
"""Characters of a line that grows; beyond that it is broken, since it is wrapped anew each time."""

LATE = 64
"""Results whose calls are in the page before, at most."""

LONG = 8
"""Rows of a card beyond which it is folded once it is done."""

LONG_FAILURE = 20
"""The same where the tool has failed."""


@dataclass(slots=True)
class _Text:
    """A text that the agent says or thinks: the block at its end grows.

    Attributes:
        lines: the whole lines of this block.
        rest: the line that has no end yet.
        first: no block of it came before.
        fence: of the Markdown code that is open before this block.
    """

    kind: str
    key: str
    lines: list[str] = field(default_factory=list)
    rest: str = ""
    first: bool = True
    fence: str = ""

    def block(self) -> Block:
        """It as it is."""
        lines = [*self.lines, self.rest] if self.rest.strip() else self.lines
        if self.kind == EventKind.THINKING:
            rows = [self._row(line, at) for at, line in enumerate(lines)]
            return Block(rows, self.key, folds=len(rows) > 1, folded=len(rows) > 1)
        made, _ = drawn(lines, self.fence)
        return Block([self._row(line, at) for at, line in enumerate(made)], self.key)

    def next(self, key: str) -> _Text:
        """The block in which it goes on."""
        fence = drawn(self.lines, self.fence)[1]
        return _Text(self.kind, key, rest=self.rest, first=False, fence=fence)

    def _row(self, line: str | tuple[Span, ...], at: int) -> Row:
        return said_row(self.kind, line, first=self.first and at == 0)


@dataclass(slots=True)
class _Card:
    """What came of one call, or of one request.

    Attributes:
        rows: what was to be done; the first is its head.
        call: None for a request.
    """

    key: str
    rows: list[Row]
    call: Event | None = None


class EventBlocks:
    """Makes blocks of one worker's events, the oldest first.

    Args:
        nick: of the worker.
        page: begins the keys of the blocks, so that several may fill one log.
        late: results whose calls may be among these events: the `late` of the page behind this one.

    Attributes:
        late: results whose calls are not among these events, by call.
    """

    def __init__(self, nick: str, page: str = "", late: Mapping[str, Event] | None = None) -> None:
        self._name = f"@{nick}"
        self._page = page
        self._answers = late or {}
        self._made = 0
        self._turns, self._used = Turns(), TurnUsage()
        self._text: _Text | None = None
        self._calls: OrderedDict[str, _Card] = OrderedDict()
        self._requests: OrderedDict[str, _Card] = OrderedDict()
        self._changed: dict[str, Block] = {}
        self.late: dict[str, Event] = {}

    def of(self, events: Iterable[Event]) -> list[Block]:
        """The blocks that these events make or change, each once, as it is after the last of them."""
        for event in events:
            self._take(event)
        if self._text is not None:
            self._put(self._text.block())
        found = [block for block in self._changed.values() if block.rows]
        self._changed = {}
        return found

    def _take(self, event: Event) -> None:
        kind = string(event.get("type"))
        begins = self._turns.begins(event)
        if begins is not None:
            self._end_text()
            self._rows([begins])
        if kind in (EventKind.TEXT, EventKind.THINKING):
            self._say(kind, event)
            return
        self._end_text()
        match kind:
            case EventKind.TOOL_CALL:
                self._call(event)
            case EventKind.TOOL_RESULT:
                self._result(event)
            case EventKind.USAGE:
                self._used.count(event)
            case EventKind.RESULT:
                self._calls.clear()
                self._rows([ended_row(event, self._used.words())])
            case EventKind.CONTROL_REQUEST:
                self._request(event)
            case EventKind.CONTROL_RESPONSE:
                self._response(event)
            case _:
                self._rows(list(other_rows(kind, event)))

    # ── text ──

    def _say(self, kind: str, event: Event) -> None:
        delta = bool(event.get("delta"))
        text = self._text
        if text is None or text.kind != kind or not delta:
            self._end_text()
            text = self._text = _Text(kind, self._key())
        said = string(event.get("text")).replace("\r\n", "\n").replace("\r", "\n")
        *whole, text.rest = (text.rest + said).split("\n")
        while len(text.rest) > LONGEST:
            line, text.rest = _broken(text.rest)
            whole.append(line)
        for line in whole:
            if len(text.lines) >= PIECE:
                text = self._next_piece(text)
            text.lines.append(line)
        if not delta:
            self._end_text()

    def _next_piece(self, text: _Text) -> _Text:
        """The text goes on in another block."""
        self._text, text.rest = text.next(self._key()), ""
        self._put(text.block())
        return self._text

    def _end_text(self) -> None:
        if self._text is not None:
            self._put(self._text.block())
            self._text = None

    # ── tools ──

    def _call(self, event: Event) -> None:
        rows = [call_head(event), *call_body(event, lines=OUTPUT, changed=OUTPUT)]
        card = _Card(self._key(), rows, event)
        call = string(event.get("call"))
        if call in self._answers:
            self._done(card, self._answers[call])
            return
        _keep(self._calls, call, card)
        self._put(Block(rows, card.key, folds=len(rows) > 1))

    def _result(self, event: Event) -> None:
        call = string(event.get("call"))
        card = self._calls.pop(call, None)
        if card is None:
            if len(self.late) < LATE:
                self.late[call] = event
            said = {"tool": "result", "title": "of an earlier call"}
            card = _Card(self._key(), [call_head(said)], said)
        self._done(card, event)

    def _done(self, card: _Card, result: Event) -> None:
        """A card with what came of the call."""
        bad = failed(result)
        mark, style = ("✗", Style.BAD) if bad else ("✓", Style.GOOD)
        rows = [call_head(card.call or {}, mark, style), *card.rows[1:]]
        rows += output_rows(result, OUTPUT)
        if bad:
            rows.append(outcome_row(result))
        folded = len(rows) > (LONG_FAILURE if bad else LONG)
        self._put(Block(rows, card.key, folds=len(rows) > 1, folded=folded))

    # ── what is asked ──

    def _request(self, event: Event) -> None:
        card = _Card(self._key(), request_rows(self._name, event))
        _keep(self._requests, string(event.get("request")), card)
        self._put(Block(card.rows, card.key, folds=len(card.rows) > 1))

    def _response(self, event: Event) -> None:
        card = self._requests.pop(string(event.get("request")), None)
        if card is None:
            self._rows([response_row(event)])
            return
        rows = [*card.rows, response_row(event)]
        self._put(Block(rows, card.key, folds=True, folded=False))

    # ── blocks ──

    def _rows(self, rows: list[Row]) -> None:
        self._put(Block(rows, self._key()))

    def _put(self, block: Block) -> None:
        self._changed[block.key] = block

    def _key(self) -> str:
        self._made += 1
        return f"{self._page}{self._made}"


def _keep(kept: OrderedDict[str, Any], name: str, value: Any) -> None:
    """Keep one more, and not too many."""
    kept[name] = value
    while len(kept) > CALLS:
        kept.popitem(last=False)


def _broken(line: str) -> tuple[str, str]:
    """A line that is too long in two, at a space where there is one."""
    at = line.rfind(" ", LONGEST // 2, LONGEST) + 1 or LONGEST
    return line[:at], line[at:]


# ── what is past, and what comes ──

FIRST = 200
"""Events that are shown at once."""

PAGE = 500
"""Events of each page of older ones."""


class EventPages:
    """One worker's events, from `begin` to `close`; nothing is handed over after `close`.

    Args:
        put: takes the next blocks.
        ended: called when no more will come: with the reason.
        away: called when the post room has gone, and when it is back.

    Attributes:
        begun: it follows what comes.
        quiet: the worker has no events yet.
        whole: there are no older events than those that were handed over.
    """

    def __init__(
        self,
        app: ScreenPort,
        target: Target,
        put: Callable[[Sequence[Block]], None],
        ended: Callable[[PostroomError | None], None],
        away: Callable[[bool], None],
    ) -> None:
        self._app, self._target = app, target
        self._put, self._ended, self._away = put, ended, away
        self._live = self._oldest = EventBlocks(target.name)
        self._first = 0
        self._pages = 0
        self._following: Any = None
        self._closed = False
        self.quiet = True
        self.whole = True

    @property
    def begun(self) -> bool:
        """Whether it follows what comes."""
        return self._following is not None

    async def begin(self) -> None:
        """Show the newest events, and follow what comes.

        Raises:
            NotFound: the post room does not run such a worker.
            Forbidden: the person does not operate.
            PostroomError: the post room is away.
        """
        events = await self._events(FIRST, 0)
        if self._closed:
            return
        self._take(events)
        if events:
            self._first = events[0]["id"]
        self.whole = len(events) < FIRST
        after = events[-1]["id"] if events else 0
        self._following = self._app.run_worker(partial(self._follow, after))

    async def _follow(self, after: int) -> None:
        client, error = self._app.client, None
        try:
            await follow(
                client.events(self._target.uid, after_id=after, for_ever=True, away=self._away),
                self._take,
            )
        except PostroomError as found:
            error = found
        self._ended(error)

    async def older(self) -> list[Block]:
        """The blocks of the page before all that was handed over, to be put before them.

        Raises:
            PostroomError: the post room is away.
        """
        if self.whole or self._closed:
            return []
        events = await self._events(PAGE, self._first)
        if self._closed:
            return []
        self.whole = len(events) < PAGE
        if not events:
            return []
        self._first = events[0]["id"]
        self._pages += 1
        self._oldest = EventBlocks(self._target.name, f"{self._pages}-", self._oldest.late)
        return self._oldest.of(events)

    def close(self) -> None:
        """Hand over nothing more."""
        self._closed = True
        if self._following is not None:
            self._following.cancel()

    def _events(self, limit: int, before: int) -> Any:
        newest = self._app.client.newest_events
        return newest(self._target.uid, limit=limit, before_id=before)

    def _take(self, events: Sequence[Any]) -> None:
        if events and not self._closed:
            self.quiet = False
            self._put(self._live.of(events))
