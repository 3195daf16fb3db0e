"""`postroom revoke`."""

from __future__ import annotations

import click

from postroom.cli.options import connect, json_option, state_option
from postroom.cli.output import print_json
from postroom_a2a.text import one_line


@click.command("revoke")
@click.argument("nick", required=False)
@click.option("--all-credentials", "everyone", is_flag=True, help="Those of every worker.")
@json_option
@state_option()
def command(nick: str | None, everyone: bool, as_json: bool) -> None:
    """Void every credential that the worker NICK ever got, cut its connections and stop it.

    Its address, inbox and files stay; `postroom restart NICK` gives it a new identity.
    """
    if everyone == (nick is not None):
        raise click.UsageError("Name a worker, or say --all-credentials.")
    with connect() as client:
        workers = [client.revoke(nick)] if nick else client.revoke_all()
    if as_json:
        print_json(workers[0] if nick else {"workers": workers})
        return
    for worker in workers:
        click.echo(f"revoked @{one_line(worker['nick'])}")
