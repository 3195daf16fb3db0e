"""`postroom nats`: running on a NATS of your own."""

from __future__ import annotations

import click

from postroom.cli.declaring import Answer, answers, parameter
from postroom.cli.options import state_folder, state_option

FOLDER = "/var/lib/nats/postroom"


@click.group("nats")
@state_option(here=True)
def command() -> None:
    """Run on a NATS of your own (POSTROOM_NATS_URL)."""


@command.command("config", short_help="Print what its configuration must say.")
@answers(
    parameter(
        "--folder DIR: Where that server keeps accounts and streams.",
        default=FOLDER,
        show_default=True,
    ),
    here=True,
)
def config(folder: str) -> Answer:
    """Print what the configuration of each of your nats-servers must say to carry this post room.

    It needs no post room that runs, and makes the keys if there are none. There is no private key in it.
    Start the post room with POSTROOM_NATS_URL=tls://HOST:PORT, several with commas between them.
    """
    from postroom.bus.block import written
    from postroom.control.nats_server import nats_block
    from postroom.settings import Settings

    block = nats_block(Settings(state=state_folder()), folder.rstrip("/"))
    return block, written(block)
