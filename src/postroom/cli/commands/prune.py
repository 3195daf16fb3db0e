"""What nobody needs: `postroom prune` and `tidy`."""

from __future__ import annotations

import time
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

import click

from postroom.cli.declaring import Answer, answers, parameter
from postroom.cli.options import connect
from postroom.cli.output import print_table
from postroom.errors import InvalidInput
from postroom.lines.text import Cell
from postroom.view.words import ago, size_of
from postroom.view.workspaces import SHORT, counted
from postroom_a2a.text import one_line

if TYPE_CHECKING:
    from postroom.protocol.answers import Leftovers
    from postroom.protocol.shapes import Excess, Leftover


@click.command("prune")
@answers("--dry-run: Only say what would be deleted.", "--yes: Do not ask.")
def command(dry_run: bool, yes: bool, as_json: bool) -> Answer:
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
    record = {"retention": excess, "leftovers": left, "deleted": not dry_run}
    if not excess and not left:
        return (
            record,
            "nothing is due by the settings of retention; removed workers have left nothing",
        )
    if dry_run:
        return record, ()
    gone = [
        *_by_kind(excess),
        *([f"{len(left)} {_folders(len(left))}, {_size(left)}"] if left else []),
    ]
    return record, (f"deleted {found}" for found in gone)


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


@click.command("tidy")
@answers(
    parameter("folder [DIR]", type=click.Path()),
    "--unmerged: Also delete what nothing else has.",
    "--dry-run: Only say what there is.",
    "--yes: Do not ask.",
)
def tidy(folder: str, unmerged: bool, dry_run: bool, yes: bool, as_json: bool) -> Answer:
    """Delete what removed workers have left: branches in the repository DIR that are merged, and folders.

    DIR is the folder that you are in, if you name none. A branch with commits that nothing else has, and a folder with
    files that did not come back, are named, and stay without --unmerged.
    """
    from postroom.cli.arguments import confirm

    repository = _repository(folder)
    if not repository:
        raise InvalidInput(
            "you are in no repository", remedy="postroom tidy DIR; folders alone: postroom prune"
        )
    with connect() as client:
        found = client.left(repository)
        named = _unmerged(found) if unmerged else []
        if not as_json:
            _show_tidied(found, repository, unmerged=unmerged)
        some = any(each["merged"] for each in found["branches"])
        some = some or any(not each["unsaved"] for each in found["leftovers"]) or bool(named)
        if some and not dry_run:
            with_yes = f"postroom tidy {folder}{' --unmerged' if unmerged else ''} --yes"
            refusal = "nobody can be asked: nothing was deleted"
            confirm("delete what is marked?", refusal, with_yes, yes=yes)
            found = client.tidy(repository, named)
    gone = some and not dry_run
    branches = counted(len(found["branches"]), "branch").replace("branchs", "branches")
    said = f"deleted {branches}, {counted(len(found['leftovers']), 'folder')}"
    return {**found, "deleted": gone}, said if gone else ()


def _repository(folder: str) -> str:
    """The folder to look at; "" if none was named and the one that somebody is in is in no repository."""
    place = Path(folder or ".").absolute()
    inside = any((each / ".git").exists() for each in (place, *place.parents))
    return str(place) if folder or inside else ""


def _unmerged(found: Leftovers) -> list[str]:
    commits = [each["commit"] for each in found["branches"] if not each["merged"]]
    return commits + [each["uid"] for each in found["leftovers"] if each["unsaved"]]


def _show_tidied(found: Leftovers, repository: str, *, unmerged: bool) -> None:
    if not found["branches"] and not found["leftovers"]:
        click.echo("removed workers have left nothing")
        return
    mark = {True: "delete", False: "keep"}
    rows = []
    for branch in found["branches"]:
        merged = one_line(branch["merged"], 60)
        alone = counted(branch["commits"], "commit") + " that nothing else has"
        state = f"merged into {merged}" if merged else alone
        rows.append((mark[bool(merged) or unmerged], one_line(branch["name"], 80), state))
    for left in found["leftovers"]:
        unsaved = one_line(", ".join(left["unsaved"]), 80)
        what = f"not brought back: {unsaved}" if unsaved else size_of(left["bytes"])
        nick = f"@{one_line(left['nick'])}" if left["nick"] else one_line(left["uid"], 8)
        rows.append((mark[not unsaved or unmerged], f"folder of {nick}", what))
    print_table(("", "WHAT", "STATE"), [[Cell(text) for text in row] for row in rows])
    for branch in found["branches"]:
        if not branch["merged"]:
            name, commit = one_line(branch["name"], 80), one_line(branch["commit"])[:SHORT]
            again = f"git -C {quote(repository)} branch {quote(name)} {commit}"
            click.echo(f"{name} is at {commit}; deleted, it comes again by: {again}", err=True)
