"""`postroom logs`."""

from __future__ import annotations

import os
import stat
from collections import deque
from pathlib import Path

import click

from postroom.cli.options import chosen_org, connect, json_option, state_folder, state_option
from postroom.cli.output import print_json
from postroom.protocol.text import printable


@click.command("logs")
@click.argument("nick")
@click.option(
    "--lines",
    "-l",
    type=click.IntRange(1, 100_000),
    default=100,
    show_default=True,
    metavar="N",
    help="How many.",
)
@json_option
@state_option()
def command(nick: str, lines: int, as_json: bool) -> None:
    """Show the last lines that the worker NICK (or uid) printed.

    For a uid no post room needs to be running.
    """
    uid = _uid(nick)
    newest = _tail(_workers() / uid / "log", lines)
    if as_json:
        print_json({"uid": uid, "lines": newest})
        return
    if not newest:
        click.echo("nothing was printed", err=True)
    for line in newest:
        click.echo(printable(line))


def _workers() -> Path:
    from postroom.settings import DEFAULT_ORG, Settings

    return Settings(state=state_folder()).for_org(chosen_org() or DEFAULT_ORG).workers


def _uid(ref: str) -> str:
    from postroom.protocol.ids import UID, check_uid

    if UID.fullmatch(ref):
        return ref
    with connect() as client:
        return check_uid(client.worker(ref)["uid"])


def _tail(path: Path, lines: int) -> list[str]:
    """The last `lines` lines of `path`.

    Raises:
        NotFound: there is no such log.
    """
    from postroom.errors import NotFound

    try:
        # The file is the worker's output: neither a link nor a pipe may stand in its place.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise NotFound(f"no log at {path}: {error.strerror}") from error
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise NotFound(f"no log at {path}: not a file")
        newest = deque(file, maxlen=lines)
    return [line.decode(errors="replace").rstrip("\r\n") for line in newest]
