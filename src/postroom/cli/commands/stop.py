"""`postroom stop`."""

from __future__ import annotations

import click

from postroom.cli.completion import agents
from postroom.cli.options import connect, json_option, state_option
from postroom.cli.several import each
from postroom_a2a.text import one_line


@click.command("stop")
@click.argument("nicks", metavar="NICK...", nargs=-1, shell_complete=agents)
@click.option("--all", "everyone", is_flag=True, help="Every worker that runs.")
@json_option
@state_option()
def command(nicks: tuple[str, ...], everyone: bool, as_json: bool) -> int:
    """Stop each worker NICK; its inbox keeps what comes until it is started again."""
    if everyone == bool(nicks):
        raise click.UsageError("Name workers, or say --all.")
    with connect() as client:
        if everyone:
            nicks = tuple(w["nick"] for w in client.workers() if w["desired"] == "running")
            if not (nicks or as_json):
                click.echo("no worker runs")
        return each(
            nicks,
            client.stop,
            lambda worker: f"stopped @{one_line(worker['nick'])}",
            as_json=as_json,
            listed=everyone,
        )
