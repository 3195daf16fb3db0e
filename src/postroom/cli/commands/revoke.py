"""`postroom revoke`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from postroom.cli.completion import agents
from postroom.cli.options import connect, json_option, state_option
from postroom.cli.output import print_json
from postroom.cli.several import each
from postroom_a2a.text import one_line

if TYPE_CHECKING:
    from postroom.protocol.shapes import Worker


@click.command("revoke")
@click.argument("nicks", metavar="NICK...", nargs=-1, shell_complete=agents)
@click.option("--all-credentials", "everyone", is_flag=True, help="Those of every worker.")
@json_option
@state_option()
def command(nicks: tuple[str, ...], everyone: bool, as_json: bool) -> int:
    """Void every credential that each worker NICK ever got, cut its connections and stop it.

    Its address, inbox and files stay; `postroom restart NICK` gives it a new identity.
    """
    if everyone == bool(nicks):
        raise click.UsageError("Name workers, or say --all-credentials.")
    with connect() as client:
        if nicks:
            return each(nicks, client.revoke, _line, as_json=as_json)
        workers = client.revoke_all()
    if as_json:
        print_json({"workers": workers})
        return 0
    for worker in workers:
        click.echo(_line(worker))
    return 0


def _line(worker: Worker) -> str:
    return f"revoked @{one_line(worker['nick'])}"
