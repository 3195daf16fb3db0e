"""`postroom admin`: what an operator does while no post room runs."""

from __future__ import annotations

import click

from postroom.cli.options import chosen_org, json_option, state_folder, state_option
from postroom.cli.output import print_json


@click.group("admin")
@state_option(org=False)
def command() -> None:
    """Repair what belongs to a post room that is down."""


@command.command("rebuild", short_help="Build the view of messages and posts again.")
@json_option
@state_option()
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
