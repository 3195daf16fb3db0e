"""What commands print of the parts of a result."""

from __future__ import annotations

import json

import click

from postroom.lines.parts import Holder, fetch_lines, part_lines, sized
from postroom.protocol.parts import DATA, TEXT, kind_of
from postroom_a2a.text import one_line, printable


def print_content(holder: Holder, *, always: bool = False) -> None:
    """Print a result: text, data and the URLs of files go to standard output, what the files are to standard error.

    Args:
        always: print an empty line where there is nothing else.
    """
    parts = [part for part, _ in sized(holder) if kind_of(part) != TEXT]
    if holder["text"] or (always and not parts):
        click.echo(printable(holder["text"]).rstrip("\n"))
    for part in parts:
        if kind_of(part) == DATA:
            click.echo(json.dumps(part["data"], ensure_ascii=True))
        elif isinstance(url := part.get("url"), str):
            click.echo(one_line(url))
    for line in [*part_lines(holder), *(f"    get it: {each}" for each in fetch_lines(holder))]:
        click.echo(line, err=True)
