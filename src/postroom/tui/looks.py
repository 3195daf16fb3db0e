"""How styles of rows, nicks and states look in the terminal: on dark and on light ground, and without colours.

The colours are of the fixed part of the 256 colours, of a middle brightness: each is read as well on black as on white,
so that nothing needs to know which of them the terminal has. Where colours are unwanted (https://no-color.org), bold,
dim and underlined text tell apart what they told.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from functools import lru_cache

from rich.style import Style as RichStyle
from rich.text import Text

from postroom.lines.rows import Row, Span, Style

LOOKS: dict[Style, RichStyle] = {
    Style.PLAIN: RichStyle(),
    Style.DIM: RichStyle(dim=True),
    Style.STRONG: RichStyle(bold=True),
    Style.TOOL: RichStyle(color="color(31)"),
    Style.GOOD: RichStyle(color="color(28)"),
    Style.BAD: RichStyle(color="color(160)"),
    Style.ASKS: RichStyle(color="color(136)", bold=True),
    Style.ADDED: RichStyle(color="color(28)"),
    Style.REMOVED: RichStyle(color="color(160)"),
}

COLOURLESS: dict[Style, RichStyle] = {
    Style.PLAIN: RichStyle(),
    Style.DIM: RichStyle(dim=True),
    Style.STRONG: RichStyle(bold=True),
    Style.TOOL: RichStyle(underline=True),
    Style.GOOD: RichStyle(),
    Style.BAD: RichStyle(bold=True, underline=True),
    Style.ASKS: RichStyle(bold=True, reverse=True),
    Style.ADDED: RichStyle(bold=True),
    Style.REMOVED: RichStyle(dim=True),
}

LINK = RichStyle(underline=True)
FOUND = RichStyle(reverse=True)
FOUND_HERE = RichStyle(reverse=True, bold=True, underline=True)

NICKS = tuple(f"color({n})" for n in (31, 163, 28, 166, 33, 134, 136, 168, 30, 98, 130, 100))
"""Colours of agents, neighbours far from each other."""


def colours() -> bool:
    """Whether colours are wanted. Ask before the application is made: Textual takes the variable away."""
    return not os.environ.get("NO_COLOR")


def native() -> bool | None:
    """What `App(ansi_color=)` takes: without colours True, since only then does Textual leave all of them out."""
    return None if colours() else True


def nick_colour(uid: str) -> str:
    """The colour of an agent, the same in every session."""
    return NICKS[hashlib.sha256(uid.encode(errors="backslashreplace")).digest()[0] % len(NICKS)]


def look_of(span: Span, *, colours: bool = True) -> RichStyle:
    """How a piece of a row looks; a name has the colour of its agent."""
    return _look(span.style, span.who, colours)


@lru_cache(maxsize=4096)
def _look(style: Style, who: str, colours: bool) -> RichStyle:
    if not who:
        return (LOOKS if colours else COLOURLESS)[style]
    if not colours:
        return COLOURLESS[style] + RichStyle(bold=True)
    return LOOKS[style] + RichStyle(color=nick_colour(who), bold=True)


def text_of(rows: Iterable[Row]) -> Text:
    """A line for each row; what does not fit is left to the widget."""
    return Text("\n").join(map(_line, rows))


def _line(row: Row) -> Text:
    line = Text(" " * row.indent)
    for span in row.spans:
        line.append(span.text, LOOKS[span.style])
    return line
