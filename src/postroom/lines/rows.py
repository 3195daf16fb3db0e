"""Rows of text in a few styles, and how they become lines of a terminal. Pure.

What shows events makes rows; a terminal in line mode paints them here, another one may paint them in its own way. Text
of an agent gets into a row by `Span` alone, which makes it harmless, and gives each character the columns that it takes
in every terminal: they, and the libraries that count for them, disagree about sequences (a flag, an emoji with a colour
of skin, a character with a tower of marks), and a row that is wider than was counted runs into what stands beside it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import groupby
from typing import Any

import click

from postroom.lines.text import columns, shortened
from postroom_a2a.text import printable

TAB = 4
"""Columns of a tab."""

HANG = 2
"""Least indent of the lines that a row goes on in: only ours begin in the first column."""

LEAST = 8
"""Columns that a text keeps beside its indent, however narrow the terminal is."""


MARKS = 4
"""Marks that one character keeps; real words have no more."""

_LETTERS = {0x1F1E6 + n: chr(ord("A") + n) for n in range(26)}
"""The halves of flags, which are letters by themselves."""

_DROPPED = re.compile(
    "["
    "\ufe00-\ufe0f\U000e0100-\U000e01ef\u180b-\u180f"  # choose another form of the character before
    "\U0001f3fb-\U0001f3ff"  # colours of skin
    "\u1160-\u11ff\ud7b0-\ud7ff\uffa0\u3164\u115f\u034f\u17b4\u17b5"  # stray parts of Hangul syllables, fillers
    "\u0488\u0489\u1abe\u20dd-\u20e0\u20e2-\u20e4\ua670-\ua672"  # drawn around the character before
    "]"
)


_UNSURE = re.compile("[\u2630-\u2637\u268a-\u268f\u4dc0-\u4dff\U0001d300-\U0001d376]")
"""Signs that are one column in some terminals and two in others."""

UNKNOWN = "\ufffd"

_SYLLABLES = re.compile("[\u1100-\u11ff]{2,}")
_COMPOSED = re.compile(".[\u0300-\u036f\u3099\u309a]+|[\u1100-\u11ff]{2,}")
"""What has a character of its own; others that look the same stay what they are."""


def steady(text: str, other: Callable[[str], str] | None = None) -> str:
    """`text` without what makes its width uncertain: sequences become their parts, towers of marks become short.

    Args:
        other: what stands in the place of a character that would go; None for nothing.
    """
    if text.isascii():
        return text
    if other is None:
        text = text.translate(_LETTERS)
    kept: list[str] = []
    marks = MARKS  # a mark at the beginning would stand over what is not this text's
    for char in (_COMPOSED if other is None else _SYLLABLES).sub(_composed, text):
        marks = marks + 1 if unicodedata.category(char) in {"Mn", "Mc", "Me"} else 0
        unsure = _UNSURE.match(char) is not None
        if marks <= MARKS and ord(char) not in _LETTERS and not (unsure or _DROPPED.match(char)):
            kept.append(char)
        elif other is not None:
            kept.append(other(char))
        elif unsure:
            kept.append(UNKNOWN)
    return "".join(kept)


def _composed(found: re.Match[str]) -> str:
    return unicodedata.normalize("NFC", found.group())


class Style(Enum):
    """What a piece of a row is."""

    PLAIN = "plain"
    DIM = "dim"
    STRONG = "strong"
    TOOL = "tool"
    GOOD = "good"
    BAD = "bad"
    ASKS = "asks"
    ADDED = "added"
    REMOVED = "removed"


_LOOK: dict[Style, dict[str, Any]] = {
    Style.PLAIN: {},
    Style.DIM: {"dim": True},
    Style.STRONG: {"bold": True},
    Style.TOOL: {"fg": "cyan"},
    Style.GOOD: {"fg": "green"},
    Style.BAD: {"fg": "red"},
    Style.ASKS: {"fg": "yellow", "bold": True},
    Style.ADDED: {"fg": "green"},
    Style.REMOVED: {"fg": "red"},
}


STATES = {
    # of tasks
    "auth-required": Style.ASKS,
    "completed": Style.GOOD,
    "failed": Style.BAD,
    "input-required": Style.ASKS,
    "rejected": Style.BAD,
    "working": Style.GOOD,
    # of workers
    "asks": Style.ASKS,
    "exited": Style.DIM,
    "idle": Style.GOOD,
    "stalled": Style.ASKS,
    "starting": Style.TOOL,
    "stopped": Style.DIM,
    "unknown": Style.ASKS,
    # of approvals
    "allowed": Style.GOOD,
    "denied": Style.BAD,
    "edited": Style.GOOD,
    "expired": Style.BAD,
    "pending": Style.ASKS,
    # of sessions
    "away": Style.DIM,
    "busy": Style.GOOD,
    "gone": Style.DIM,
}


def style_of(state: str) -> Style:
    """How a state looks; plain is one that needs no attention, or that this version does not know."""
    return STATES.get(state, Style.PLAIN)


def colour_of(state: str) -> str | None:
    """The same as one of click's colours, None for none."""
    return _LOOK[style_of(state)].get("fg")


def paint(span: Span) -> str:
    """The text of a piece in its style, for a terminal."""
    return styled(span.text, span.style)


def styled(text: str, style: Style) -> str:
    """A text that is harmless already, in a style, for a terminal."""
    look = _LOOK[style]
    return click.style(text, **look) if look and text else text


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of a row: printable, without an end of line or a tab, whatever it was made with.

    Attributes:
        who: uid of the agent whose name it is, "" for anything else; a screen shows each in its colour.
    """

    text: str
    style: Style = Style.PLAIN
    who: str = ""

    def __post_init__(self) -> None:
        if not self.text.isascii() or not self.text.isprintable():
            flat = printable(self.text).replace("\n", " ").expandtabs(TAB)
            object.__setattr__(self, "text", steady(flat))

    def part(self, text: str) -> Span:
        """Another text in the same look."""
        return Span(text, self.style, self.who)


@dataclass(frozen=True, slots=True)
class Row:
    """One row.

    Attributes:
        indent: columns before the first piece; further lines have `HANG` at least.
        wraps: what does not fit goes on in further lines; otherwise it is cut.
    """

    spans: tuple[Span, ...]
    indent: int = 0
    wraps: bool = False

    @classmethod
    def of(
        cls, text: str, style: Style = Style.PLAIN, *, indent: int = 0, wraps: bool = False
    ) -> Row:
        """A row of one piece."""
        return cls((Span(text, style),), indent, wraps)

    @property
    def text(self) -> str:
        """The row without its styles."""
        return " " * self.indent + "".join(span.text for span in self.spans)


_WORD = re.compile(r"[^ ]+ *| +")
"""A word with the spaces behind it; spaces at the beginning are one, too."""


Line = tuple[int, tuple[Span, ...]]
"""A line of a terminal: the columns of its indent, and its pieces."""


def broken(row: Row, width: int | None) -> list[Line]:
    """A row as lines of at most `width` columns; None for no limit."""
    if width is None or columns(row.text) <= width:
        return [(row.indent, row.spans)]
    if not row.wraps:
        indent = min(row.indent, max(0, width - LEAST))
        return [(indent, _cut(row.spans, width - indent))]
    hang = min(max(row.indent, HANG), max(0, width - LEAST))
    first, *rest = _wrapped(row.spans, width - hang)
    return [(min(row.indent, hang), first), *((hang, line) for line in rest)]


def painted(row: Row, width: int | None) -> list[str]:
    """The same with the styles of the line mode."""
    return [_painted(line) for line in broken(row, width)]


def _painted(line: Line) -> str:
    indent, spans = line
    return " " * indent + "".join(map(paint, spans)) if any(s.text for s in spans) else ""


def _cut(spans: tuple[Span, ...], room: int) -> tuple[Span, ...]:
    """The beginning of a row, with an ellipsis."""
    kept: list[Span] = []
    for number, span in enumerate(spans):
        last = number == len(spans) - 1
        if columns(span.text) < room or (last and columns(span.text) <= room):
            kept.append(span)
            room -= columns(span.text)
            continue
        kept.append(span.part(shortened(f"{span.text}…", room)))
        break
    return tuple(kept)


def _wrapped(spans: tuple[Span, ...], room: int) -> list[tuple[Span, ...]]:
    """A row in lines of at most `room` columns, broken at spaces where there are any."""
    lines: list[list[Span]] = [[]]
    left = room
    for span in spans:
        for word in _words(span.text, room):
            if columns(word.rstrip(" ")) > left and lines[-1]:
                lines.append([])
                left = room
            lines[-1].append(span.part(word))
            left -= columns(word)
    return [_joined(line) for line in lines]


def _joined(line: list[Span]) -> tuple[Span, ...]:
    """A line with its words of one look in one piece, and no spaces at its end."""
    found = [
        span.part("".join(each.text for each in (span, *rest)))
        for _, (span, *rest) in groupby(line, key=lambda span: (span.style, span.who))
    ]
    if found:
        found[-1] = found[-1].part(found[-1].text.rstrip(" "))
    return tuple(found)


def _words(text: str, room: int) -> Iterator[str]:
    """Words with the spaces behind them; one that is wider than `room` comes in pieces."""
    for word in _WORD.findall(text):
        if columns(word) <= room:
            yield word
        else:
            yield from _pieces(word, room)


def _pieces(word: str, room: int) -> Iterator[str]:
    """A word in pieces of at most `room` columns; a mark stays with its character."""
    piece, width = "", 0
    for char in word:
        size = columns(char)
        if width + size > room and piece and unicodedata.category(char) != "Mc":
            yield piece
            piece, width = "", 0
        piece += char
        width += size
    yield piece
