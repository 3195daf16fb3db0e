"""The post room as a whole: `postroom backup`, `restore` and `admin`."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from postroom.cli.declaring import Answer, answers, parameter
from postroom.cli.options import chosen_org, state_folder, state_option
from postroom.cli.output import print_json
from postroom.errors import InvalidInput
from postroom.view.words import address, ago
from postroom_a2a.text import one_line
from postroom_a2a.times import format_time

if TYPE_CHECKING:
    from collections.abc import Iterator

    from postroom.protocol.answers import Integrity, Saved

passphrase_option = parameter(
    "--passphrase-file FILE: The first line of FILE is the passphrase; without it you are asked.",
    type=click.Path(dir_okay=False),
)
FILE = parameter("file", type=click.Path(dir_okay=False, path_type=Path))


def passphrase_from(file: str | None, *, twice: bool) -> str:
    """The passphrase; asked for twice if it is a new one.

    Raises:
        InvalidInput: the file cannot be read, or nobody can be asked.
    """
    if file is not None:
        try:
            return Path(file).read_text().partition("\n")[0].rstrip("\r")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidInput(f"cannot read {file}: {error}") from error
    if not sys.stdin.isatty():
        raise InvalidInput(
            "a passphrase is needed, and there is no terminal to type it in",
            remedy="--passphrase-file FILE",
        )
    return click.prompt("Passphrase", hide_input=True, confirmation_prompt=twice, err=True)


@click.command("backup")
@answers(FILE, passphrase_option, org=False, here=True)
def command(file: Path, passphrase_file: str | None) -> Answer:
    """Write the whole post room into FILE, while it runs or is down.

    FILE has all organisations: messages, tasks, agents, workers with their workspaces, blobs, settings, the log and
    the audit log. Its keys are encrypted with a passphrase; without it, FILE gives nobody an identity. What agents
    have written is not encrypted.
    """
    passphrase = passphrase_from(passphrase_file, twice=True)
    done = _taken(file.absolute(), passphrase)

    def say() -> None:
        click.echo(f"backed up to {done['file']}, {done['bytes'] / (1024 * 1024):.1f} MiB")
        for name in done["skipped"]:
            click.echo(f"left out, since it cannot be read: {name!r}", err=True)

    return done, say


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


@click.command("restore")
@answers(FILE, passphrase_option, org=False, here=True)
def restore(file: Path, passphrase_file: str | None) -> Answer:
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
    record = {"state": str(done.state), "created": created, "orgs": done.orgs}
    return record, (
        f"restored {done.state}, as it was {ago(created, time.time())}",
        f"start it: {at_state(done.state, 'up --detach')}",
    )


@click.group("admin")
@state_option(org=False, here=True)
def admin() -> None:
    """Check a post room, and repair what belongs to one that is down."""


@admin.command("rebuild", short_help="Build the view of messages and posts again.")
@answers(here=True)
def rebuild() -> Answer:
    """Build the database's view of messages and posts again, from the last snapshot and the log."""
    from postroom.control.rebuild import run_rebuild
    from postroom.settings import DEFAULT_ORG
    from postroom.settings.sources import load

    settings = load(state_folder()).for_org(chosen_org() or DEFAULT_ORG)
    mended = run_rebuild(settings)
    lines = [f"rebuilt {settings.home}"]
    if mended:
        lines.append(f"{mended} altered message{'s' * (mended > 1)} mended from the log")
    return {"rebuilt": str(settings.home), "mended": mended}, lines


@admin.command("verify", short_help="Check that no message was changed in the database.")
@answers(org=False, here=True)
def verify(as_json: bool) -> None:
    """Check the signature of every message of all organisations, while the post room runs or is down.

    Every message that somebody has changed in the database is named, and the exit status is 10. `admin rebuild` gives
    those back what the log still has.
    """
    from postroom.errors import MessageAltered

    found = _verified()
    altered = sum(checked["altered"] for checked in found.values())
    if as_json:
        print_json({"orgs": found})
    else:
        for org, checked in found.items():
            for line in _said_of(org, checked):
                click.echo(line)
    if altered:
        raise MessageAltered(
            f"{altered:,} messages are not as they were stored",
            remedy="postroom down, then postroom admin rebuild: the log may have what they said",
        )


def _verified() -> dict[str, Integrity]:
    from postroom.client.locate import locate
    from postroom.errors import NotRunning

    state = state_folder()
    try:
        locate(state)
    except NotRunning:
        from postroom.control.verifying import verify_stopped
        from postroom.settings.sources import load

        return verify_stopped(load(state))
    from postroom.client.http import Client

    found = {}
    with Client.at(state) as client:
        orgs = [org["name"] for org in client.orgs()]
    for org in orgs:
        with Client.at(state, org) as client:
            found[org] = client.integrity()
    return found


def _said_of(org: str, checked: Integrity) -> Iterator[str]:
    first = (
        f", {checked['first']:,} of them only since the first start that signed"
        if checked["first"]
        else ""
    )
    number = checked["messages"]
    what = "message is" if number == 1 else "messages are"
    yield f"{one_line(org)}: {number:,} {what} checked{first}"
    for one in checked["named"]:
        parties = f"{address(one['from'])} to {address(one['to'])}"
        yield f"  altered: message {one_line(one['id'])} from {parties}, stored {one['at']}"


@admin.command("move-store", short_help="Move all rows to another database.")
@answers("target URL|sqlite|-", org=False, here=True)
def move_store(target: str, as_json: bool) -> None:
    """Move all rows of the post room to the PostgreSQL at URL, or with `sqlite` into files of the state folder.

    With `-` the URL is read from standard input, since others can read a password in a command line. Every table is
    compared after the move. Then the setting `database.url` names the new place, and the old database stays under
    another name.
    """
    from postroom.cli.settings_file import change_file
    from postroom.control.moving import run_move
    from postroom.settings import SETTINGS_FILE
    from postroom.settings.options import option
    from postroom.settings.sources import load

    state, wanted = state_folder(), option("database.url")
    if target == "-":
        target = sys.stdin.readline().strip()
    url = "" if target == "sqlite" else wanted.from_text(target, "URL")
    file = state / SETTINGS_FILE
    moved = run_move(load(state), url, lambda: change_file(file, wanted.key, url or None))
    if as_json:
        print_json({"moved": {one.org: one.rows for one in moved}})
    else:
        for one in moved:
            click.echo(f"moved {one.rows:,} rows of the organisation {one.org}, and compared them")
        click.echo(f"{wanted.key} is {'set' if url else 'no longer set'} in {file}")
    if os.environ.get(wanted.variable, url) != url:
        click.echo(f"note: {wanted.variable} names another one here, and counts first", err=True)
