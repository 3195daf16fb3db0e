"""Events of a worker as rows, in their order, and the parts of which the line mode and the screen put them together.

A row that begins in the first column is ours; each line of an agent's text is indented, so none can pass for one. Pure.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from postroom.lines.inputs import changes, command, diff_rows, input_rows, subject, visible
from postroom.lines.rows import Row, Span, Style
from postroom.protocol.events import EventKind
from postroom.protocol.limits import SHORT_ID
from postroom.view.words import lines_of

OUTPUT = 6
"""Lines of a tool's output that are shown."""

CHANGED = 40
"""Lines of a change that are shown."""


LONGEST = 64 * 1024
"""Characters of a line that has no end yet; it is shown as it is then."""

CALLS = 256
"""Open tool calls that are remembered."""

_TOKENS = ("input_tokens", "output_tokens")
_ENDINGS = {"completed": Style.GOOD, "failed": Style.BAD, "interrupted": Style.ASKS}
_STATUS = {"error": Style.BAD, "denied": Style.BAD, "interrupted": Style.ASKS}
_OURS = (
    EventKind.CONTROL_RESPONSE,
    EventKind.INTERRUPT,
    EventKind.POLICY,
    EventKind.TERMINAL,
)
"""Kinds of events that the control plane stores."""

_DECIDED = {"allowed": Style.GOOD, "edited": Style.GOOD, "denied": Style.BAD, "expired": Style.BAD}


class Turns:
    """Knows what the agent's turn is for."""

    def __init__(self) -> None:
        self._turn = self._about = ""

    def begins(self, event: Mapping[str, Any]) -> Row | None:
        """A row where the agent begins with something else: what that is."""
        if event.get("type") in _OURS:
            return None  # these may be about an earlier turn, and need not name one
        task, message = string(event.get("task")), string(event.get("message"))
        turn = string(event.get("turn"))
        about = f"task {task[:SHORT_ID]}" if task else ""
        about = about or (f"message {message[:SHORT_ID]}" if message else "")
        begins = about != self._about if about else turn not in ("", self._turn)
        self._turn = turn or self._turn
        if not begins:
            return None
        self._about = about
        return Row.of(f"── {about or 'turn'}", Style.DIM)


class TurnUsage:
    """Adds up what a turn has used."""

    def __init__(self) -> None:
        self._tokens = [0, 0]
        self._cost = 0.0

    def count(self, event: Mapping[str, Any]) -> None:
        """Take an event of kind `usage`."""
        for place, name in enumerate(_TOKENS):
            self._tokens[place] += number(event.get(name), int)
        self._cost += number(event.get("cost"), float)

    def words(self) -> str:
        """All of it, "" for nothing; it begins anew."""
        tokens, cost = self._tokens, self._cost
        self._tokens, self._cost = [0, 0], 0.0
        if not any(tokens):
            return ""
        spent = f", ${cost:.4f}" if cost else ""
        return f" · {tokens[0]:,} tokens in, {tokens[1]:,} out{spent}"


def said_row(kind: str, line: str | tuple[Span, ...], *, first: bool) -> Row:
    """A line of what the agent says or thinks, with a mark before the first one."""
    thinks = kind == EventKind.THINKING
    style = Style.DIM if thinks else Style.PLAIN
    mark = ("~ " if thinks else "● ") if first else "  "
    said = (Span(line, style),) if isinstance(line, str) else line
    spans = (Span(mark, style), *said) if mark.strip() else said
    return Row(spans, indent=0 if mark.strip() else 2, wraps=True)


def call_title(event: Mapping[str, Any]) -> str:
    """What a tool is used on, "" where the call does not say."""
    title = subject(fields(event.get("input"))) or string(event.get("title"))
    return "" if title == string(event.get("tool")) else title


def call_name(event: Mapping[str, Any]) -> str:
    """A call in a few words."""
    return f"{string(event.get('tool'))} {lines_of(call_title(event))[0]}".strip()


def call_head(event: Mapping[str, Any], mark: str = "▸", style: Style = Style.PLAIN) -> Row:
    """The tool and what it is used on."""
    head = lines_of(call_title(event))[0]
    tool = string(event.get("tool")) or "tool"
    return Row((Span(f"{mark} ", style), Span(tool, Style.TOOL), Span(f"  {head}" if head else "")))


def call_body(event: Mapping[str, Any], *, lines: int, changed: int) -> Iterator[Row]:
    """The further lines of a command, and the changes of files.

    Args:
        lines: the most of a command.
        changed: the most of changes.
    """
    given = fields(event.get("input"))
    if command(given):
        more = lines_of(call_title(event))[1:]
        yield from some((Row.of(line, indent=4) for line in more), lines, 4)
    found = (row for change in changes(given) for row in diff_rows(change, indent=4))
    yield from some(found, changed, 4)


def failed(event: Mapping[str, Any]) -> bool:
    """Whether a tool's result is none that one hopes for."""
    code = event.get("exit_code")
    return string(event.get("status")) in _STATUS or (isinstance(code, int) and code != 0)


def output_rows(event: Mapping[str, Any], most: int) -> Iterator[Row]:
    """The output in a tool's result."""
    output = string(event.get("output"))
    if not output.strip():
        return
    shown = (
        Row((Span("│ ", Style.DIM), Span(line, Style.DIM)), indent=2) for line in lines_of(output)
    )
    yield from some(shown, most, 2)


def outcome_row(event: Mapping[str, Any]) -> Row:
    """How a tool has failed."""
    status, code = string(event.get("status")), event.get("exit_code")
    said = status if status in _STATUS else "failed"
    ended = f", exit code {code}" if isinstance(code, int) else ""
    return Row.of(f"{said}{ended}", _STATUS.get(status, Style.BAD), indent=2)


def ended_row(event: Mapping[str, Any], used: str) -> Row:
    """How a turn has ended, and what it has used (`TurnUsage.words`)."""
    status, reason = string(event.get("status")), string(event.get("reason"))
    said = f"{status}: {reason}" if reason else status
    style = _ENDINGS.get(status, Style.DIM)
    return Row((Span("■ ", style), Span(said, style), Span(used, Style.DIM)), wraps=True)


def request_rows(name: str, event: Mapping[str, Any]) -> list[Row]:
    """What an agent asks, whole: a permission with all that the tool is to do, or a question."""
    title, tool = string(event.get("title")), string(event.get("tool"))
    reason = string(event.get("reason"))
    if event.get("kind") == "question":
        head, *more = lines_of(title)
        rows = [Row((Span(f"? {name} asks: ", Style.ASKS), Span(visible(head))), wraps=True)]
        return rows + [Row.of(line, indent=4, wraps=True) for line in more]
    asks = Span(f"? {name} asks to use {visible(tool) or 'a tool'}", Style.ASKS)
    rows = [Row((asks, Span(f": {visible(title)}" if title else "")), wraps=True)]
    if reason:
        rows.append(Row.of(f"because: {visible(reason)}", Style.DIM, indent=2, wraps=True))
    return rows + list(input_rows(fields(event.get("input"))))


_CHANGED = {"removed": "asked again", "autonomy": "autonomy set"}
"""What a change of the policy is called."""


def response_row(event: Mapping[str, Any]) -> Row:
    """How a request of an agent was decided: by whom, over which channel, and why."""
    decision = string(event.get("decision"))
    who, channel = _by(event), string(event.get("channel"))
    over = f" ({channel})" if channel and channel not in ("policy", "agent", "clock") else ""
    reason = string(event.get("reason"))
    why = f": {lines_of(reason)[0]}" if reason else ""
    style = _DECIDED.get(decision, Style.DIM)
    return Row((Span(f"  {decision}", style), Span(f"{who}{over}{why}")), wraps=True)


def _by(event: Mapping[str, Any]) -> str:
    """By whom a decision was made."""
    match event.get("channel"):
        case "policy":
            return " by its policy"
        case "agent":
            return " by the agent itself"
        case "clock":
            return ", since nobody answered in time"
    by = fields(event.get("by"))
    nick, uid = string(by.get("nick")), string(by.get("uid"))
    if nick:
        return f" by @{nick}"
    return f" by {uid}" if uid else ""


def other_rows(kind: str, event: Mapping[str, Any]) -> Iterator[Row]:
    """An event of any other kind."""
    text = string(event.get("text"))
    match kind:
        case EventKind.STARTED:
            model, version = string(event.get("model")), string(event.get("version"))
            began = "session goes on" if event.get("resumed") else "new session"
            about = ", ".join(each for each in (began, model, version) if each)
            yield Row.of(f"── {about}", Style.DIM)
        case EventKind.ERROR:
            code = string(event.get("code"))
            said = f"error: {text}" + (f" ({code})" if code else "")
            yield Row.of(said, Style.BAD, wraps=True)
        case EventKind.STALLED:
            seconds = number(event.get("seconds"), float)
            said = f"nothing has come for {seconds:g} s" if seconds else "it goes on"
            yield Row.of(f"── {said}", Style.ASKS)
        case EventKind.INTERRUPT:
            reason = string(event.get("reason"))
            yield Row.of(f"── interrupted{_by(event)}{f': {reason}' if reason else ''}", Style.ASKS)
        case EventKind.POLICY:
            what = visible(string(event.get("autonomy") or event.get("pattern")))
            said = _CHANGED.get(string(event.get("change")), "allowed from now on")
            until = " until this task ends" if event.get("autonomy") and event.get("task") else ""
            yield Row.of(f"── {said}{_by(event)}: {what}{until}", Style.DIM, wraps=True)
        case EventKind.TERMINAL:
            yield Row.of(
                f"── terminal {string(event.get('state')) or 'opened'}{_by(event)}", Style.DIM
            )
        case EventKind.RAW if raw := string(event.get("raw")):
            yield Row.of(lines_of(raw)[0], Style.DIM, indent=2)


def some(rows: Iterator[Row], most: int, indent: int) -> Iterator[Row]:
    """The first rows, and how many more there are."""
    yield from islice(rows, most)
    left = sum(1 for _ in rows)
    if left:
        yield Row.of(f"… {left} more line{'s' if left > 1 else ''}", Style.DIM, indent=indent)


def string(value: Any) -> str:
    """A field as a text, whatever it is."""
    return value if isinstance(value, str) else "" if value is None else str(value)


def fields(value: Any) -> Mapping[str, Any]:
    """A field as an object, whatever it is."""
    return value if isinstance(value, Mapping) else {}


def number(value: Any, kind: type) -> Any:
    """A field as a number, whatever it is."""
    valid = isinstance(value, int | float) and not isinstance(value, bool)
    return kind(value) if valid and abs(value) < 1e15 else kind(0)


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
        self._turns, self._used = Turns(), TurnUsage()

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
