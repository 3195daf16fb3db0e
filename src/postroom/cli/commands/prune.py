"""`postroom prune`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from postroom.cli.options import connect, json_option, state_option
from postroom.cli.output import print_json, print_table
from postroom.lines.words import Cell, ago
from postroom_a2a.text import one_line

if TYPE_CHECKING:
    from postroom.protocol.shapes import Excess, Leftover


@click.command("prune")
@click.option("--dry-run", is_flag=True, help="Only say what would be deleted.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@state_option()
def command(dry_run: bool, yes: bool, as_json: bool) -> None:
    """Delete what the settings of retention do not keep, and what removed workers have left on disk.

    Without such settings all messages and tasks stay. Open ones always do, and so does everything of workers that are
    there.
    """
    from postroom.cli.arguments import confirm

    with connect() as client:
        excess, left = client.excess(), client.leftovers()
        if not as_json:
            _show(excess, left)
        if (excess or left) and not dry_run:
            confirm(
                "delete this for ever?",
                "nothing was deleted: without a terminal you cannot be asked",
                "postroom prune --yes",
                yes=yes,
            )
            excess, left = client.give_up(), client.prune()
    if as_json:
        print_json({"retention": excess, "leftovers": left, "deleted": not dry_run})
    elif not excess and not left:
        click.echo("nothing is due by the settings of retention; removed workers have left nothing")
    elif not dry_run:
        for found in _by_kind(excess):
            click.echo(f"deleted {found}")
        if left:
            click.echo(f"deleted {len(left)} {_folders(len(left))}, {_size(left)}")


def _show(excess: list[Excess], left: list[Leftover]) -> None:
    if excess:
        now = time.time()
        rows = [
            [
                Cell(found["kind"]),
                Cell(f"#{found['project']}" if found["project"] else "-"),
                Cell(f"{found['count']:,}"),
                Cell(_mib(found["bytes"])),
                Cell(ago(found["oldest"], now)),
            ]
            for found in excess
        ]
        print_table(("KIND", "PROJECT", "COUNT", "SIZE", "OLDEST"), rows)
    for one in left:
        nick = f"@{one_line(one['nick'])}" if one["nick"] else "unknown"
        click.echo(f"{nick}  {_size([one])}  {one_line(one['folder'])}")


def _by_kind(excess: list[Excess]) -> list[str]:
    counted: dict[str, tuple[int, int]] = {}
    for found in excess:
        count, size = counted.get(found["kind"], (0, 0))
        counted[found["kind"]] = (count + found["count"], size + found["bytes"])
    return [f"{count:,} {_THING[kind]}, {_mib(size)}" for kind, (count, size) in counted.items()]


_THING = {
    "messages": "messages",
    "tasks": "tasks",
    "events": "events of tasks",
    "posts": "posts",
    "announcements": "announcements",
    "audit": "files of the audit log",
}


def _folders(number: int) -> str:
    return "folder" if number == 1 else "folders"


def _size(found: list[Leftover]) -> str:
    sizes = [left["bytes"] for left in found if left["bytes"] is not None]
    least = "" if len(sizes) == len(found) else "at least "
    return f"{least}{_mib(sum(sizes))}"


def _mib(size: int) -> str:
    return f"{size / (1024 * 1024):.1f} MiB"
