"""What commands print: JSON, tables for the width of the terminal, the parts of a result, errors."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import click

from postroom_a2a.text import one_line, printable

if TYPE_CHECKING:
    from postroom.errors import PostroomError
    from postroom.lines.text import Cell
    from postroom.view.words import Holder


def print_json(value: object) -> None:
    """Print `value` as JSON, in ASCII, so that no character of it can act on a terminal."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=True))


def terminal_width() -> int | None:
    """Columns of the output's terminal; None for a pipe or a file, where nothing is cut."""
    if sys.stdout is None or not sys.stdout.isatty():
        return None
    return max(1, shutil.get_terminal_size().columns)


def error_width() -> int | None:
    """The same of the terminal for errors."""
    if sys.stderr is None or not sys.stderr.isatty():
        return None
    return max(1, shutil.get_terminal_size().columns)


def print_table(
    head: Sequence[str],
    rows: Iterable[Sequence[Cell]],
    *,
    cut: Sequence[str] = (),
    empty: str = "",
) -> None:
    """Print rows under a head, as `table` makes them, for the output's terminal; `empty` in place of no rows."""
    from postroom.lines.text import table

    rows = list(rows)
    for line in (
        table(head, rows, cut=cut, width=terminal_width()) if rows or not empty else [empty]
    ):
        click.echo(line)


def print_content(holder: Holder, *, always: bool = False) -> None:
    """Print a result: text, data and the URLs of files go to standard output, what the files are to standard error.

    Args:
        always: print an empty line where there is nothing else.
    """
    parts = [part for part in holder.get("parts", ()) if not isinstance(part.get("text"), str)]
    if holder["text"] or (always and not parts):
        click.echo(printable(holder["text"]).rstrip("\n"))
    if not parts:
        return
    from postroom.lines.text import fetch_lines
    from postroom.protocol.parts import DATA, kind_of
    from postroom.view.words import part_lines

    for part in parts:
        if kind_of(part) == DATA:
            click.echo(json.dumps(part["data"], ensure_ascii=True))
        elif isinstance(url := part.get("url"), str):
            click.echo(one_line(url))
    for line in [*part_lines(holder), *(f"    get it: {each}" for each in fetch_lines(holder))]:
        click.echo(line, err=True)


def report(error: PostroomError) -> None:
    """Print the error and its remedy on standard error."""
    click.echo(f"postroom: {one_line(error.message)}", err=True)
    if error.remedy:
        click.echo(f"  try: {one_line(error.remedy)}", err=True)
