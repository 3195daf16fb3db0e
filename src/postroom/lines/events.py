"""Events of a worker as rows, in the order in which they come; what one event needs of earlier ones is kept here. Pure.

A row that begins in the first column is ours; each line of an agent's text is indented, so none can pass for one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from postroom.lines.inputs import changes, command, diff_rows, input_rows, subject, visible
from postroom.lines.rows import Row, Span, Style, lines_of
from postroom.protocol.events import EventKind
from postroom.protocol.limits import SHORT_ID

OUTPUT = 6
"""Lines of a tool's output that are shown."""

CHANGED = 40
"""Lines of a change that are shown."""

CALLS = 256
"""Open tool calls that are remembered."""

LONGEST = 64 * 1024
"""Characters of a line that has no end yet; it is shown as it is then."""

_TOKENS = ("input_tokens", "output_tokens")
_ENDINGS = {"completed": Style.GOOD, "failed": Style.BAD, "interrupted": Style.ASKS}
_STATUS = {"error": Style.BAD, "denied": Style.BAD, "interrupted": Style.ASKS}
_OURS = (EventKind.CONTROL_RESPONSE, EventKind.INTERRUPT, EventKind.TERMINAL)
"""Kinds of events that the control plane stores."""

_DECIDED = {"allowed": Style.GOOD, "edited": Style.GOOD, "denied": Style.BAD, "expired": Style.BAD}


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
        self._turn = self._about = ""
        self._used = [0, 0]
        self._cost = 0.0

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
                self._count(event)
            case EventKind.RESULT:
                rows += self._ended(event)
            case EventKind.CONTROL_REQUEST if self._requests:
                rows += request_rows(self._name, event)
            case EventKind.CONTROL_RESPONSE if self._requests:
                rows.append(response_row(event))
            case _:
                rows += _other(kind, event)
        return rows

    def flush(self) -> list[Row]:
        """The rest of a text that has no end of line yet."""
        return list(self._said.end())

    def pause(self) -> list[Row]:
        """The rest of a text that has no end of line yet, and may go on."""
        return list(self._said.rest())

    def _turn_rows(self, event: Mapping[str, Any]) -> Iterator[Row]:
        """A row where the agent begins with something else: what that is."""
        if event.get("type") in _OURS:
            return  # these may be about an earlier turn, and need not name one
        task, message = _string(event.get("task")), _string(event.get("message"))
        turn = _string(event.get("turn"))
        about = f"task {task[:SHORT_ID]}" if task else ""
        about = about or (f"message {message[:SHORT_ID]}" if message else "")
        begins = about != self._about if about else turn not in ("", self._turn)
        self._turn = turn or self._turn
        if not begins:
            return
        self._about = about
        yield from self.flush()
        if not self._compact:
            yield Row.of(f"── {about or 'turn'}", Style.DIM)

    def _text(self, kind: str, event: Mapping[str, Any]) -> list[Row]:
        thinking = kind == EventKind.THINKING
        text = _string(event.get("text"))
        if thinking and self._compact:
            return []
        rows = list(self._said.begin(kind, goes_on=bool(event.get("delta"))))
        rows += self._said.more(text)
        if not event.get("delta"):
            rows += self._said.end()
        return rows

    def _call(self, event: Mapping[str, Any]) -> Iterator[Row]:
        tool, given = _string(event.get("tool")), _object(event.get("input"))
        title = subject(given) or _string(event.get("title"))
        title = "" if title == tool else title
        call = _string(event.get("call"))
        named = f"{tool} {lines_of(title)[0]}".strip()
        self._calls[call] = named
        self._last_call = call
        while len(self._calls) > CALLS:
            self._calls.popitem(last=False)
        head, *more = lines_of(title)
        yield Row((Span("▸ "), Span(tool or "tool", Style.TOOL), Span(f"  {head}" if head else "")))
        if self._compact:
            return
        if command(given):
            yield from _some((Row.of(line, indent=4) for line in more), OUTPUT, 4)
        found = (row for change in changes(given) for row in diff_rows(change, indent=4))
        yield from _some(found, CHANGED, 4)

    def _result(self, event: Mapping[str, Any]) -> Iterator[Row]:
        call, status = _string(event.get("call")), _string(event.get("status"))
        named = self._calls.pop(call, "")
        code = event.get("exit_code")
        failed = status in _STATUS or (isinstance(code, int) and code != 0)
        late = named and call != self._last_call
        if late and (failed or not self._compact):
            yield Row.of(f"  {named}:", Style.DIM)
        output = _string(event.get("output"))
        if output.strip() and (failed or not self._compact):
            shown = (
                Row((Span("│ ", Style.DIM), Span(line, Style.DIM)), indent=2)
                for line in lines_of(output)
            )
            yield from _some(shown, 1 if self._compact else OUTPUT, 2)
        if failed:
            said = status if status in _STATUS else "failed"
            ended = f", exit code {code}" if isinstance(code, int) else ""
            yield Row.of(f"{said}{ended}", _STATUS.get(status, Style.BAD), indent=2)

    def _count(self, event: Mapping[str, Any]) -> None:
        for place, name in enumerate(_TOKENS):
            self._used[place] += _number(event.get(name), int)
        self._cost += _number(event.get("cost"), float)

    def _ended(self, event: Mapping[str, Any]) -> Iterator[Row]:
        status = _string(event.get("status"))
        reason = _string(event.get("reason"))
        said = f"{status}: {reason}" if reason else status
        yield Row(
            (
                Span("■ ", _ENDINGS.get(status, Style.DIM)),
                Span(said, _ENDINGS.get(status, Style.DIM)),
                Span(self._usage(), Style.DIM),
            ),
            wraps=True,
        )
        self._used, self._cost = [0, 0], 0.0
        self._calls.clear()

    def _usage(self) -> str:
        if not any(self._used):
            return ""
        cost = f", ${self._cost:.4f}" if self._cost else ""
        return f" · {self._used[0]:,} tokens in, {self._used[1]:,} out{cost}"


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
        thinks = self._kind == EventKind.THINKING
        style = Style.DIM if thinks else Style.PLAIN
        mark = ("~ " if thinks else "● ") if self._first else "  "
        self._first = False
        spans = (Span(mark, style), Span(line, style)) if mark.strip() else (Span(line, style),)
        return Row(spans, indent=0 if mark.strip() else 2, wraps=True)


def request_rows(name: str, event: Mapping[str, Any]) -> list[Row]:
    """What an agent asks, whole: a permission with all that the tool is to do, or a question."""
    title, tool = _string(event.get("title")), _string(event.get("tool"))
    reason = _string(event.get("reason"))
    if event.get("kind") == "question":
        head, *more = lines_of(title)
        rows = [Row((Span(f"? {name} asks: ", Style.ASKS), Span(visible(head))), wraps=True)]
        return rows + [Row.of(line, indent=4, wraps=True) for line in more]
    asks = Span(f"? {name} asks to use {visible(tool) or 'a tool'}", Style.ASKS)
    rows = [Row((asks, Span(f": {visible(title)}" if title else "")), wraps=True)]
    if reason:
        rows.append(Row.of(f"because: {visible(reason)}", Style.DIM, indent=2, wraps=True))
    return rows + list(input_rows(_object(event.get("input"))))


def response_row(event: Mapping[str, Any]) -> Row:
    """How a request of an agent was decided: by whom, over which channel, and why."""
    decision = _string(event.get("decision"))
    who, channel = _by(event), _string(event.get("channel"))
    over = f" ({channel})" if channel and channel not in ("policy", "agent", "clock") else ""
    reason = _string(event.get("reason"))
    why = f": {lines_of(reason)[0]}" if reason else ""
    style = _DECIDED.get(decision, Style.DIM)
    return Row((Span(f"  {decision}", style), Span(f"{who}{over}{why}")), wraps=True)


def _by(event: Mapping[str, Any]) -> str:
    """By whom a decision was made."""
    match event.get("channel"):
        case "policy":
            return " by its template"
        case "agent":
            return " by the agent itself"
        case "clock":
            return ", since nobody answered in time"
    by = _object(event.get("by"))
    nick, uid = _string(by.get("nick")), _string(by.get("uid"))
    if nick:
        return f" by @{nick}"
    return f" by {uid}" if uid else ""


def _other(kind: str, event: Mapping[str, Any]) -> Iterator[Row]:
    text = _string(event.get("text"))
    match kind:
        case EventKind.STARTED:
            model, version = _string(event.get("model")), _string(event.get("version"))
            began = "session goes on" if event.get("resumed") else "new session"
            about = ", ".join(each for each in (began, model, version) if each)
            yield Row.of(f"── {about}", Style.DIM)
        case EventKind.ERROR:
            code = _string(event.get("code"))
            said = f"error: {text}" + (f" ({code})" if code else "")
            yield Row.of(said, Style.BAD, wraps=True)
        case EventKind.STALLED:
            seconds = _number(event.get("seconds"), float)
            said = f"nothing has come for {seconds:g} s" if seconds else "it goes on"
            yield Row.of(f"── {said}", Style.ASKS)
        case EventKind.INTERRUPT:
            reason = _string(event.get("reason"))
            yield Row.of(f"── interrupted{_by(event)}{f': {reason}' if reason else ''}", Style.ASKS)
        case EventKind.TERMINAL:
            yield Row.of(
                f"── terminal {_string(event.get('state')) or 'opened'}{_by(event)}", Style.DIM
            )
        case EventKind.RAW if raw := _string(event.get("raw")):
            yield Row.of(lines_of(raw)[0], Style.DIM, indent=2)


def _some(rows: Iterator[Row], most: int, indent: int) -> Iterator[Row]:
    """The first rows, and how many more there are."""
    yield from islice(rows, most)
    left = sum(1 for _ in rows)
    if left:
        yield Row.of(f"… {left} more line{'s' if left > 1 else ''}", Style.DIM, indent=indent)


def _string(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _number(value: Any, kind: type) -> Any:
    valid = isinstance(value, int | float) and not isinstance(value, bool)
    return kind(value) if valid and abs(value) < 1e15 else kind(0)
