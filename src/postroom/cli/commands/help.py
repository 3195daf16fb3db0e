"""`postroom help` and `version`."""

from __future__ import annotations

import click

from postroom.cli.declaring import Answer, answers, takes


@click.command("help")
@takes("names [COMMAND]...")
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
@answers(post_room=False)
def version() -> Answer:
    """Print the version, with its commit where that is known; `postroom status` says what the post room has."""
    from postroom import __version__
    from postroom.build import commit, version

    return {"version": __version__, "commit": commit()}, f"postroom {version()}"
