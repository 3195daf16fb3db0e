"""`postroom backup`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from postroom.cli.options import json_option, state_folder, state_option
from postroom.cli.output import print_json
from postroom.cli.passphrase import passphrase_from, passphrase_option

if TYPE_CHECKING:
    from postroom.protocol.answers import Saved


@click.command("backup")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@passphrase_option
@json_option
@state_option(org=False, here=True)
def command(file: Path, passphrase_file: str | None, as_json: bool) -> None:
    """Write the whole post room into FILE, while it runs or is down.

    FILE has all organisations: messages, tasks, agents, workers with their workspaces, blobs, settings, the log and
    the audit log. Its keys are encrypted with a passphrase; without it, FILE gives nobody an identity. What agents
    have written is not encrypted.
    """
    passphrase = passphrase_from(passphrase_file, twice=True)
    done = _taken(file.absolute(), passphrase)
    if as_json:
        print_json(done)
        return
    click.echo(f"backed up to {done['file']}, {done['bytes'] / (1024 * 1024):.1f} MiB")
    for name in done["skipped"]:
        click.echo(f"left out, since it cannot be read: {name!r}", err=True)


def _taken(file: Path, passphrase: str) -> Saved:
    from postroom.client.locate import locate
    from postroom.errors import NotRunning

    state = state_folder()
    try:
        locate(state)
    except NotRunning:
        from postroom.control.backup import back_up_stopped
        from postroom.settings.sources import load

        taken = back_up_stopped(load(state), file, passphrase)
        return {
            "file": str(taken.file),
            "bytes": taken.size,
            "orgs": list(taken.orgs),
            "skipped": list(taken.skipped),
        }
    from postroom.client.http import Client

    with Client.at(state, "") as client:
        return client.back_up(str(file), passphrase)
