"""`postroom org`: create, list and remove organisations, and what of the machine is open to them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from postroom.cli.deciding import pin_of
from postroom.cli.options import (
    chosen_login,
    connect,
    json_option,
    orgs,
    pin_file_option,
    state_option,
)
from postroom.cli.output import print_json, print_table
from postroom.errors import EnvironmentFault, InvalidInput
from postroom.lines.words import Cell
from postroom.protocol.modes import COPY, DIRECT
from postroom_a2a.text import one_line

if TYPE_CHECKING:
    from postroom.protocol.shapes import Opening, Org

HEAD = ("NAME", "STATE", "WORKERS", "UNREAD", "DEAD", "YOU", "DETAIL")
COLOURS = {"open": "green", "opening": "cyan", "failed": "red"}


@click.group("org")
@state_option(org=False)
def command() -> None:
    """Make, list and remove organisations: agents of one cannot reach those of another.

    Every other command is for one of them with --org NAME, or POSTROOM_ORG.
    """


@command.command("create", short_help="Make an organisation.")
@click.argument("name")
@json_option
@state_option(org=False)
def create(name: str, as_json: bool) -> None:
    """Make the organisation NAME, with accounts, streams, database and workers of its own."""
    with connect() as client:
        made = client.create_org(name)
    if as_json:
        print_json(made)
    elif made["state"] == "open":
        click.echo(f"organisation {made['name']} is open: postroom --org {made['name']} status")
    if made["state"] == "failed":
        raise EnvironmentFault(
            f"the organisation {name} was made, but is not open: {made['detail']}",
            remedy="it is tried again by itself; postroom org list",
        )
    if made["state"] == "opening" and not as_json:
        click.echo(f"organisation {made['name']} was made and is opening: postroom org list")


@command.command("list", short_help="List all organisations.")
@json_option
@state_option(org=False)
def list_(as_json: bool) -> None:
    """List all organisations, the default one first."""
    with connect() as client:
        found = client.orgs()
    if as_json:
        print_json({"orgs": found})
    else:
        print_table(HEAD, [_row(org) for org in found], cut=("DETAIL",))


def _what(action: Callable[..., None]) -> Callable[..., None]:
    """The arguments of what opens and closes."""
    for option in (
        state_option(org=False),
        json_option,
        click.option(
            "--wall",
            type=click.Choice(("partial", "none")),
            default=None,
            help="A weaker wall: none is your account of this machine.",
        ),
        click.argument("folder", default=""),
        click.argument("name", shell_complete=orgs),
    ):
        action = option(action)
    return action


@command.command("open", short_help="Open a folder or a weaker wall to people.")
@click.option(
    "--as",
    "mode",
    type=click.Choice((COPY, DIRECT)),
    default=COPY,
    help="To be read (the default), or written, too.",
)
@pin_file_option
@_what
def open_(
    name: str, folder: str, mode: str, wall: str | None, pin_file: str | None, as_json: bool
) -> None:
    """Let the workers of other keys of the organisation NAME have FOLDER, and what is below it.

    Without it people with the scope operate can give a worker nothing of this machine but what every sandbox
    shows, and no wall that is weaker than enforced. Folders of keys and logins stay closed for all.
    """
    place, pin = _place(folder), pin_of(pin_file)
    with connect() as client:
        found = pin.used(lambda known: client.open_to(name, place, mode, wall or "", pin=known))
    _show(name, found, as_json=as_json)


@command.command("close", short_help="Close what `open` has opened.")
@_what
def close(name: str, folder: str, wall: str | None, as_json: bool) -> None:
    """Close FOLDER, or a wall, to the other keys of the organisation NAME.

    Their workers that have it are ended; their mail waits.
    """
    place = _place(folder)
    with connect() as client:
        found = client.close_to(name, place, wall or "")
    _show(name, found, as_json=as_json)


@command.command("show", short_help="Show what is open of this machine.")
@click.argument("name", shell_complete=orgs)
@json_option
@state_option(org=False)
def show(name: str, as_json: bool) -> None:
    """Show what the workers of other keys than yours may have of this machine in the organisation NAME."""
    with connect() as client:
        found = client.openings(name)
    _show(name, found, as_json=as_json)


def _place(folder: str) -> str:
    if not folder or chosen_login() is not None:
        return folder  # of another machine: as it is
    return str(Path(folder).expanduser().absolute())


def _show(name: str, found: list[Opening], *, as_json: bool) -> None:
    if as_json:
        print_json({"openings": found})
    elif found:
        words = {COPY: "read", DIRECT: "read and write", "": "-"}
        rows = [
            [
                Cell(each["kind"]),
                Cell(one_line(each["name"])),
                Cell(words.get(each["mode"], each["mode"])),
            ]
            for each in found
        ]
        print_table(("OPEN", "NAME", "FOR"), rows)
    else:
        click.echo(f"nothing of this machine is open to the keys of {name} but yours")


@command.command("remove", short_help="End an organisation for ever.")
@click.argument("name", shell_complete=orgs)
@click.option("--yes", is_flag=True, help="It is meant: there is no way back.")
@json_option
@state_option(org=False)
def remove(name: str, yes: bool, as_json: bool) -> None:
    """End the organisation NAME for ever: workers, addresses, credentials and log.

    Its folder, with database and workspaces, is kept aside.
    """
    if not yes:
        raise InvalidInput(
            f"this ends all workers of {name} and deletes its accounts and log, for ever",
            remedy=f"to confirm: postroom org remove {name} --yes",
        )
    with connect() as client:
        folder = client.remove_org(name)
    if as_json:
        print_json({"name": name, "folder": folder})
    else:
        click.echo(f"removed {name}; its files are kept in {one_line(folder)}")


def _row(org: Org) -> list[Cell]:
    counts, me = org["counts"], org["me"]
    workers = f"{counts.get('running', 0)}/{counts.get('workers', 0)}" if counts else "-"
    unread, dead = counts.get("inbox", 0), counts.get("deadletters", 0)
    return [
        Cell(org["name"]),
        Cell(org["state"], COLOURS.get(org["state"])),
        Cell(workers),
        Cell(str(unread), bold=unread > 0),
        Cell(str(dead), "red" if dead else None),
        Cell(f"@{one_line(me['nick'])}" if me else "-"),
        Cell(one_line(org["detail"], 200)),
    ]
