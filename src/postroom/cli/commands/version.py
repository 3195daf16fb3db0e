"""`postroom version`."""

from __future__ import annotations

import click

from postroom.cli.options import json_option
from postroom.cli.output import print_json


@click.command("version")
@json_option
def command(as_json: bool) -> None:
    """Print the version, with its commit where that is known; `postroom status` says what the post room has."""
    from postroom import __version__
    from postroom.build import commit, version

    if as_json:
        print_json({"version": __version__, "commit": commit()})
    else:
        click.echo(f"postroom {version()}")
