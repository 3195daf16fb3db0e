"""`postroom restore`."""

from __future__ import annotations

import time
from pathlib import Path

import click

from postroom.cli.options import json_option, state_folder, state_option
from postroom.cli.output import print_json
from postroom.cli.passphrase import passphrase_from, passphrase_option
from postroom.lines.words import ago
from postroom_a2a.times import format_time


@click.command("restore")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@passphrase_option
@json_option
@state_option(org=False, here=True)
def command(file: Path, passphrase_file: str | None, as_json: bool) -> None:
    """Restore what `postroom backup` wrote into FILE, into an empty state folder.

    FILE is checked from its first byte to its last before anything is written, and after an error nothing is there.
    Never let two post rooms run that come from one backup.
    """
    from postroom.client.locate import command as at_state
    from postroom.control.backup import run_restore
    from postroom.settings import Settings

    passphrase = passphrase_from(passphrase_file, twice=False)
    done = run_restore(Settings(state=state_folder()), file, passphrase)
    created = format_time(done.created)
    if as_json:
        print_json({"state": str(done.state), "created": created, "orgs": done.orgs})
    else:
        click.echo(f"restored {done.state}, as it was {ago(created, time.time())}")
        click.echo(f"start it: {at_state(done.state, 'up --detach')}")
