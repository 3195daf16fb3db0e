"""`postroom help` and `version`."""

from __future__ import annotations

import click

from postroom.cli.options import json_option
from postroom.cli.output import print_json


@click.command("help")
@click.argument("names", nargs=-1, metavar="[COMMAND]...")
@click.pass_context
def command(ctx: click.Context, names: tuple[str, ...]) -> None:
    """Show the help of a COMMAND, as `--help` behind it does; without one, that of all."""
    shown = ctx.find_root()
    for name in names:
        if not isinstance(shown.command, click.Group):
            raise click.UsageError(f"{shown.command_path!r} has no commands below it.", ctx)
        _, found, _ = shown.command.resolve_command(shown, [name])
        if found is not None:
            shown = click.Context(found, info_name=found.name, parent=shown)
    click.echo(shown.get_help(), color=ctx.color)


@click.command("version")
@json_option
def version(as_json: bool) -> None:
    """Print the version, with its commit where that is known; `postroom status` says what the post room has."""
    from postroom import __version__
    from postroom.build import commit, version

    if as_json:
        print_json({"version": __version__, "commit": commit()})
    else:
        click.echo(f"postroom {version()}")
