"""How answers look: JSON, tables, times, colours. Text of agents passes through here before it is printed."""

from __future__ import annotations

import json
import shutil
import sys
import time
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import click

from postroom.protocol.text import one_line, printable

NARROWEST = 12
"""Columns that a column of a table keeps in a narrow terminal."""


def print_json(value: object) -> None:
    """Print `value` as JSON, in ASCII, so that no character of it can act on a terminal."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=True))


@dataclass(frozen=True, slots=True)
class Cell:
    """Text in a table; `colour` is one of click's, or None."""

    text: str
    colour: str | None = None
    bold: bool = False
    dim: bool = False

    def padded(self, width: int) -> str:
        """The text, safe and styled, filled up to `width` columns."""
        text = shortened(one_line(self.text), width)
        filling = " " * (width - columns(text))
        if not (self.colour or self.bold or self.dim):
            return text + filling
        styled = click.style(text, fg=self.colour, bold=self.bold or None, dim=self.dim or None)
        return styled + filling


def columns(text: str) -> int:
    """How many columns of a terminal `text` takes."""
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    combining = sum(unicodedata.combining(c) > 0 for c in text)
    return len(text) + wide - combining


def shortened(text: str, width: int) -> str:
    """`text`, its end replaced by an ellipsis if it takes more than `width` columns."""
    if columns(text) <= width:
        return text
    while text and columns(text) >= width:
        text = text[:-1]
    return text + "…"


def print_table(
    head: Sequence[str], rows: Iterable[Sequence[Cell]], *, cut: Sequence[str] = ()
) -> None:
    """Print rows under a head, each column as wide as its widest cell.

    Args:
        head: titles.
        rows: a cell for each title.
        cut: titles of columns that are made narrower, the first ones first, where a terminal has no room for all.
    """
    lines = [[Cell(title, dim=True) for title in head], *rows]
    widths = [
        max(columns(one_line(cell.text)) for cell in column) for column in zip(*lines, strict=True)
    ]
    if sys.stdout is not None and sys.stdout.isatty():
        excess = sum(widths) + 2 * (len(widths) - 1) - shutil.get_terminal_size().columns
        for number in (head.index(title) for title in cut):
            saved = max(0, min(excess, widths[number] - NARROWEST))
            widths[number] -= saved
            excess -= saved
    for line in lines:
        cells = (cell.padded(width) for cell, width in zip(line, widths, strict=True))
        click.echo("  ".join(cells).rstrip())


def ago(then: float | None, now: float) -> str:
    """`3 s ago` for an instant in seconds since the epoch; `unknown` for None."""
    if then is None:
        return "unknown"
    seconds = max(0, int(now - then))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {unit} ago"
    return f"{seconds} s ago"


def clock(at: float, now: float) -> str:
    """Local time of day, with the date where it is not today's."""
    then = time.localtime(at)
    same_day = then[:3] == time.localtime(now)[:3]
    return time.strftime("%H:%M:%S" if same_day else "%Y-%m-%d %H:%M", then)


def address(party: Any) -> str:
    """`@nick` of a party, or its uid where it has no nick; a text as it stands."""
    if not isinstance(party, dict):
        return one_line(str(party), 80)
    return one_line(f"@{party['nick']}" if party.get("nick") else str(party.get("uid", "?")), 80)


def block(prefix: str, text: str) -> str:
    """`text` after `prefix`, its further lines set in, so that no text can forge the line of another."""
    first, *rest = printable(text).strip("\n").split("\n")
    return "\n".join([f"{prefix}{first}", *(f"    | {line}" for line in rest)])
