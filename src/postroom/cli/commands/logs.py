"""`postroom logs`."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import click

from postroom.cli.completion import agents
from postroom.cli.options import chosen_org, connect, json_option, state_folder, state_option
from postroom.cli.output import print_json, terminal_width
from postroom.lines.words import clock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from postroom.cli.logfile import LogLine

LOUD = frozenset({"WARNING", "ERROR", "CRITICAL"})
"""Levels of a sidecar's own lines that are shown beside the agent's output."""


@click.command("logs")
@click.argument("nick", shell_complete=agents)
@click.option(
    "--lines",
    "-l",
    type=click.IntRange(1, 100_000),
    default=100,
    show_default=True,
    metavar="N",
    help="How many to begin with.",
)
@click.option("--follow", "-f", is_flag=True, help="Go on with what comes, until Ctrl-C.")
@click.option("--times", "-t", is_flag=True, help="Say when and where each line was printed.")
@click.option("--all", "everything", is_flag=True, help="Also what the worker's sidecar logs.")
@json_option
@state_option()
def command(
    nick: str, lines: int, follow: bool, times: bool, everything: bool, as_json: bool
) -> None:
    """Show what the agent of the worker NICK (or uid) printed, as it printed it.

    Warnings of its sidecar go to standard error. Local times are shown on a terminal, or with --times. For a uid no
    post room needs to be running. With --follow each line is a JSON object if --json is given.
    """
    from postroom.cli.logfile import SIDECAR, read_log

    def wanted(line: LogLine) -> bool:
        return everything or line.source != SIDECAR or line.level in LOUD

    uid = _uid(nick)
    found = read_log(_workers() / uid / "log", lines, wanted, follow=follow)
    if as_json:
        _print_json(uid, found, follow=follow)
        return
    times = times or everything or terminal_width() is not None
    empty = True
    for line in found:
        empty = False
        beside = line.source == SIDECAR and not everything
        click.echo(_shown(line, times=times or beside), err=beside)
    if empty:
        click.echo("nothing was printed", err=True)


def _print_json(uid: str, found: Iterator[LogLine], *, follow: bool) -> None:
    if follow:
        for line in found:
            click.echo(json.dumps(_record(line), ensure_ascii=True))
        return
    entries = [_record(line) for line in found]
    print_json({"uid": uid, "lines": [entry["text"] for entry in entries], "entries": entries})


def _record(line: LogLine) -> dict[str, str | None]:
    return {"at": line.at, "source": line.source, "text": line.text}


def _shown(line: LogLine, *, times: bool) -> str:
    if not times:
        return line.text
    when = clock(line.at, time.time()) if line.at is not None else " " * 8
    mark = {"stdout": "out", "stderr": "err", "sidecar": "***"}.get(line.source, "   ")
    return f"{click.style(f'{when} {mark}|', dim=True)} {line.text}"


def _workers() -> Path:
    from postroom.settings import DEFAULT_ORG, Settings

    return Settings(state=state_folder()).for_org(chosen_org() or DEFAULT_ORG).workers


def _uid(ref: str) -> str:
    from postroom.protocol.ids import UID, check_uid

    if UID.fullmatch(ref):
        return ref
    with connect() as client:
        return check_uid(client.worker(ref)["uid"])
