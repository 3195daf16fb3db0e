"""What a worker changed: fetched, and as rows."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from postroom.lines.rows import Row, Span, Style
from postroom.lines.workspaces import MORE, changed, diff_style, place
from postroom.tui.rowlog.log import Block
from postroom.tui.worker.reading import Read, Reading
from postroom_a2a.text import one_line, printable

if TYPE_CHECKING:
    from postroom.client.http import Client
    from postroom.protocol.shapes import Difference

FILES = 12
"""Files that the head lists."""


def diff_screen(client: Client, ref: str, title: str) -> Reading:
    """The screen with what the worker `ref` changed."""
    return Reading(f"{title}: what it changed", partial(_read, client, ref))


def _read(client: Client, ref: str) -> Read:
    found = client.diff(ref)
    return list(head_rows(found)), diff_blocks(found)


def head_rows(found: Difference) -> Iterator[Row]:
    """Where, how much, which files; what is missing, and the command that takes it over."""
    where, style = place(found["workspace"])
    yield Row((Span(changed(found), Style.STRONG), Span(f" {where}", style)), wraps=True)
    counted = list(_files(found["text"]))
    for name, added, removed in counted[:FILES]:
        yield Row(
            (
                Span(f"+{added}", Style.ADDED),
                Span(f" -{removed} ", Style.REMOVED),
                Span(name),
            ),
            indent=2,
        )
    if len(counted) > FILES:
        yield Row.of(f"… {len(counted) - FILES} more files", Style.DIM, indent=2)
    for name in found["left"]:
        yield Row.of(f"not brought back: {one_line(name, 300)}", Style.ASKS, wraps=True)
    if found["cut"]:
        yield Row.of(MORE, Style.ASKS, wraps=True)
    if found["command"]:
        yield Row.of(f"take it over: {one_line(found['command'])}", wraps=True)


def diff_blocks(found: Difference) -> list[Block]:
    """A block for each file, which folds."""
    blocks: list[Block] = []
    rows: list[Row] = []
    for line in printable(found["text"]).split("\n"):
        if line.startswith("diff --git ") and rows:
            blocks.append(Block(rows, f"file {len(blocks)}", folds=True))
            rows = []
        rows.append(Row.of(line, diff_style(line), wraps=True))
    if any(row.text for row in rows):
        blocks.append(Block(rows, f"file {len(blocks)}", folds=True))
    return blocks


def _files(text: str) -> Iterator[tuple[str, int, int]]:
    """Name, lines that came and lines that went of each file."""
    name, added, removed = "", 0, 0
    inside = False
    for line in text.split("\n"):
        if line.startswith("diff --git "):
            if name:
                yield name, added, removed
            name, added, removed = line.rpartition(" b/")[2], 0, 0
            inside = False
        elif line.startswith("@@"):
            inside = True
        elif inside:
            added += line.startswith("+")
            removed += line.startswith("-")
    if name:
        yield name, added, removed
