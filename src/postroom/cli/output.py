"""What commands print: JSON, tables for the width of the terminal."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterable, Sequence

import click

from postroom.lines.words import Cell, table


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
    head: Sequence[str], rows: Iterable[Sequence[Cell]], *, cut: Sequence[str] = ()
) -> None:
    """Print rows under a head, as `table` makes them, for the output's terminal."""
    for line in table(head, rows, cut=cut, width=terminal_width()):
        click.echo(line)
