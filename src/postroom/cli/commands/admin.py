"""`postroom admin`: what an operator does while no post room runs."""

from __future__ import annotations

import os
import sys

import click

from postroom.cli.options import chosen_org, json_option, state_folder, state_option
from postroom.cli.output import print_json


@click.group("admin")
@state_option(org=False, here=True)
def command() -> None:
    """Repair what belongs to a post room that is down."""


@command.command("rebuild", short_help="Build the view of messages and posts again.")
@json_option
@state_option(here=True)
def rebuild(as_json: bool) -> None:
    """Build the database's view of messages and posts again, from the last snapshot and the log."""
    from postroom.control.rebuild import run_rebuild
    from postroom.settings import DEFAULT_ORG
    from postroom.settings.sources import load

    settings = load(state_folder()).for_org(chosen_org() or DEFAULT_ORG)
    run_rebuild(settings)
    if as_json:
        print_json({"rebuilt": str(settings.home)})
    else:
        click.echo(f"rebuilt {settings.home}")


@command.command("move-store", short_help="Move all rows to another database.")
@click.argument("target", metavar="URL|sqlite|-")
@json_option
@state_option(org=False, here=True)
def move_store(target: str, as_json: bool) -> None:
    """Move all rows of the post room to the PostgreSQL at URL, or with `sqlite` into files of the state folder.

    With `-` the URL is read from standard input, since others can read a password in a command line. Every table is
    compared after the move. Then the setting `database.url` names the new place, and the old database stays under
    another name.
    """
    from postroom.cli.settings_file import change_file
    from postroom.control.moving import run_move
    from postroom.settings import SETTINGS_FILE
    from postroom.settings.options import option
    from postroom.settings.sources import load

    state, wanted = state_folder(), option("database.url")
    if target == "-":
        target = sys.stdin.readline().strip()
    url = "" if target == "sqlite" else wanted.from_text(target, "URL")
    file = state / SETTINGS_FILE
    moved = run_move(load(state), url, lambda: change_file(file, wanted.key, url or None))
    if as_json:
        print_json({"moved": {one.org: one.rows for one in moved}})
    else:
        for one in moved:
            click.echo(f"moved {one.rows:,} rows of the organisation {one.org}, and compared them")
        click.echo(f"{wanted.key} is {'set' if url else 'no longer set'} in {file}")
    if os.environ.get(wanted.variable, url) != url:
        click.echo(f"note: {wanted.variable} names another one here, and counts first", err=True)
