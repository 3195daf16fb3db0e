"""Text of a terminal: columns, tables, blocks of what others wrote. Text of agents is made harmless here."""

from __future__ import annotations

import shlex
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import click

from postroom.protocol.blobs import is_blob
from postroom.protocol.parts import FILE, kind_of, name_in
from postroom.view.words import Holder, part_lines, sized
from postroom_a2a.text import one_line, printable

NARROWEST = 12
"""Columns that the long columns of a table keep while the table fits."""


LEAST = 5
"""Columns that they keep so that the others, ids and numbers, stay whole."""


@dataclass(frozen=True, slots=True)
class Cell:
    """Text in a table; `colour` is one of click's, or None."""

    text: str
    colour: str | None = None
    bold: bool = False
    dim: bool = False

    def padded(self, width: int) -> str:
        """The text, safe and styled, padded to `width` columns."""
        text = shortened(one_line(self.text), width)
        filling = " " * (width - columns(text))
        if not (self.colour or self.bold or self.dim):
            return text + filling
        styled = click.style(text, fg=self.colour, bold=self.bold or None, dim=self.dim or None)
        return styled + filling


def columns(text: str) -> int:
    """Terminal columns of `text`."""
    return len(text) if text.isascii() else sum(map(_columns_of, text))


@lru_cache(maxsize=8192)
def _columns_of(char: str) -> int:
    """Columns of one character: none for a mark that stands over another one."""
    if unicodedata.category(char) in {"Mn", "Me"}:
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def shortened(text: str, width: int) -> str:
    """`text`, its end replaced by an ellipsis if it takes more than `width` columns."""
    if columns(text) <= width:
        return text
    room = width - 1
    for number, char in enumerate(text):
        room -= _columns_of(char)
        if room < 0:
            return text[:number] + "…"
    return text + "…"


def fitted(text: str, width: int | None) -> str:
    """`text` on one line of at most `width` columns; None for no limit."""
    line = one_line(text)
    return line if width is None else shortened(line, width)


def table(
    head: Sequence[str],
    rows: Iterable[Sequence[Cell]],
    *,
    cut: Sequence[str] = (),
    width: int | None,
) -> list[str]:
    """Rows under a head, each column as wide as its widest cell.

    Args:
        rows: a cell for each title.
        cut: titles of columns that are narrowed before the others, the widest first.
        width: available columns, None for no limit.
    """
    lines = [[Cell(title, dim=True) for title in head], *rows]
    widths = [
        max(columns(one_line(cell.text)) for cell in column) for column in zip(*lines, strict=True)
    ]
    if width is not None:
        room = max(0, width - 2 * (len(widths) - 1))
        first = [head.index(title) for title in cut]
        for among, least in ((first, NARROWEST), (first, LEAST), (range(len(widths)), 1)):
            _narrow(widths, among, room, least)
    return [
        "  ".join(cell.padded(size) for cell, size in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]


def _narrow(widths: list[int], among: Sequence[int], room: int, least: int) -> None:
    """Narrow the widest of the columns `among` until all fit into `room` or each has only `least`."""
    while sum(widths) > room and among:
        widest = max(among, key=lambda number: widths[number])
        if widths[widest] <= least:
            return
        widths[widest] -= 1


def block(prefix: str, text: str) -> str:
    """`text` after `prefix`, with indented further lines, so that no text can forge the line of another."""
    first, *rest = printable(text).strip("\n").split("\n")
    return "\n".join([f"{prefix}{first}", *(f"    | {line}" for line in rest)])


def fetch_lines(holder: Holder) -> list[str]:
    """For each blob among the parts the command that fetches it."""
    return [
        f"postroom blob get {part['url']} -o {shlex.quote(name_in(part) or 'content')}"
        for part, _ in sized(holder)
        if kind_of(part) == FILE and is_blob(part.get("url"))
    ]


def body_lines(holder: Holder) -> list[str]:
    """All that is said, below a line that says by whom. No text can be taken for another line."""
    subject = holder.get("subject") or ""
    lines = [f"    subject: {one_line(subject)}"] if subject else []
    others = part_lines(holder)
    if holder["text"] or not others:
        lines.append(block("    | ", holder["text"]))
    return [*lines, *(f"    {line}" for line in others)]
