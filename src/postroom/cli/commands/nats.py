"""`postroom nats`: running on a NATS of your own."""

from __future__ import annotations

import click

from postroom.cli.options import json_option, state_folder, state_option
from postroom.cli.output import print_json

FOLDER = "/var/lib/nats/postroom"


@click.group("nats")
@state_option(here=True)
def command() -> None:
    """Run on a NATS of your own (POSTROOM_NATS_URL)."""


@command.command("config", short_help="Print what its configuration must say.")
@click.option(
    "--folder",
    metavar="DIR",
    default=FOLDER,
    show_default=True,
    help="Where that server keeps accounts and streams.",
)
@json_option
@state_option(here=True)
def config(folder: str, as_json: bool) -> None:
    """Print what the configuration of each of your nats-servers must say to carry this post room.

    It needs no post room that runs, and makes the keys if there are none. There is no private key in it.
    Start the post room with POSTROOM_NATS_URL=tls://HOST:PORT, several with commas between them.
    """
    from postroom.bus.block import written
    from postroom.control.nats_server import nats_block
    from postroom.settings import Settings

    block = nats_block(Settings(state=state_folder()), folder.rstrip("/"))
    if as_json:
        print_json(block)
    else:
        click.echo(written(block))
