"""What could not be brought back from the folder that a worker works on."""

from __future__ import annotations

from collections.abc import Iterable

import click

from postroom_a2a.text import one_line


def tell_left(left: Iterable[str]) -> None:
    """Say what could not be brought back."""
    for name in left:
        click.echo(f"not brought back: {one_line(name, 300)}", err=True)
