"""`postroom status`."""

from __future__ import annotations

import json
import time

import click

from postroom.cli.options import connect, json_option, state_option
from postroom.cli.output import print_json, terminal_width


@click.command("status")
@click.option(
    "--wide", is_flag=True, help="Also sandboxes, projects, counts, and when each was seen."
)
@click.option("--watch", is_flag=True, help="Show it anew whenever something happens.")
@json_option
@state_option()
def command(wide: bool, watch: bool, as_json: bool) -> None:
    """Show what needs you, then each worker: what it is at, for how long, and what it said last.

    The exit status is 3 if no post room is running. With --watch it goes on until Ctrl-C, also while the post room is
    down; in a pipe each picture is printed behind the one before.
    """
    with connect() as client:
        from postroom.cli.status import status_lines

        def picture() -> list[str]:
            status = client.status()
            if as_json:
                return [json.dumps(status, ensure_ascii=True)]  # a line each
            return status_lines(status, time.time(), width=terminal_width(), wide=wide)

        if watch:
            from postroom.cli.redrawing import redraw

            redraw(client, picture)
        elif as_json:
            print_json(client.status())
        else:
            click.echo("\n".join(picture()))
