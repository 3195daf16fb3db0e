"""How styles of rows, nicks and states look in the terminal: in a light and a dark theme, and without colours."""

from __future__ import annotations

import hashlib
import os

from rich.style import Style as RichStyle

from postroom.lines.rows import Span, Style

LOOKS: dict[Style, RichStyle] = {
    Style.PLAIN: RichStyle(),
    Style.DIM: RichStyle(dim=True),
    Style.STRONG: RichStyle(bold=True),
    Style.TOOL: RichStyle(color="cyan"),
    Style.GOOD: RichStyle(color="green"),
    Style.BAD: RichStyle(color="red"),
    Style.ASKS: RichStyle(color="yellow", bold=True),
    Style.ADDED: RichStyle(color="green"),
    Style.REMOVED: RichStyle(color="red"),
}

_NICKS = (
    "cyan",
    "magenta",
    "green",
    "yellow",
    "blue",
    "bright_cyan",
    "bright_magenta",
    "bright_green",
)


def colours() -> bool:
    """Whether colours are wanted (https://no-color.org)."""
    return not os.environ.get("NO_COLOR")


def nick_colour(uid: str) -> str:
    """The colour of an agent, the same in every session."""
    return _NICKS[hashlib.sha256(uid.encode()).digest()[0] % len(_NICKS)]


def look_of(span: Span) -> RichStyle:
    """How a piece of a row looks; a name has the colour of its agent."""
    look = LOOKS[span.style]
    return look + RichStyle(color=nick_colour(span.who)) if span.who else look
