"""`postroom org`: create, list and remove organisations, and what of the machine is open to them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from postroom.cli.declaring import Answer, answers, asks, parameter
from postroom.cli.options import (
    choose_org,
    chosen_login,
    connect,
    orgs,
    pin_file_option,
    state_option,
)
from postroom.cli.output import print_json, print_table
from postroom.errors import EnvironmentFault, InvalidInput
from postroom.lines.text import Cell
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
@answers("name", org=False)
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
@asks("orgs.list", org=False)
def list_(found: list[Org]) -> None:
    """List all organisations, the default one first."""
    print_table(HEAD, map(_row, found), cut=("DETAIL",))


def _place(ctx: click.Context, _: click.Parameter, folder: str) -> str:
    """A folder of this machine with its whole path; one of another machine as it is."""
    here = folder and not ctx.resilient_parsing and chosen_login() is None
    return str(Path(folder).expanduser().absolute()) if here else folder


_named = parameter("name", shell_complete=orgs)
_WHAT = (
    _named,
    parameter("folder [FOLDER]", callback=_place),
    "--wall: A weaker wall: none is your account of this machine.",
)


@command.command("open", short_help="Open a folder or a weaker wall to people.")
@asks(
    "openings.open",
    "--as mode: To be read (the default), or written, too.",
    pin_file_option,
    *_WHAT,
    org=False,
)
def open_(found: list[Opening], name: str) -> None:
    """Let the workers of other keys of the organisation NAME have FOLDER, and what is below it.

    Without it people with the scope operate can give a worker nothing of this machine but what every sandbox
    shows, and no wall that is weaker than enforced. Folders of keys and logins stay closed for all.
    """
    _show(name, found)


@command.command("close", short_help="Close what `open` has opened.")
@asks("openings.close", *_WHAT, org=False)
def close(found: list[Opening], name: str) -> None:
    """Close FOLDER, or a wall, to the other keys of the organisation NAME.

    Their workers that have it are ended; their mail waits.
    """
    _show(name, found)


@command.command("show", short_help="Show what is open of this machine.")
@asks("openings.list", _named, org=False)
def show(found: list[Opening], name: str) -> None:
    """Show what the workers of other keys than yours may have of this machine in the organisation NAME."""
    _show(name, found)


def _show(name: str, found: list[Opening]) -> None:
    words = {COPY: "read", DIRECT: "read and write", "": "-"}
    rows = [
        [
            Cell(each["kind"]),
            Cell(one_line(each["name"])),
            Cell(words.get(each["mode"], each["mode"])),
        ]
        for each in found
    ]
    closed = f"nothing of this machine is open to the keys of {name} but yours"
    print_table(("OPEN", "NAME", "FOR"), rows, empty=closed)


@command.command("set", short_help="Say how agents come in, and who reaches them.")
@answers(
    _named,
    parameter(
        "--registration HOW: Who joins: those with an invite, everybody, or nobody.",
        type=click.Choice(("invite", "open", "closed")),
    ),
    parameter(
        "--grants-only only SWITCH: Its agents are reached by grants alone (on), or by one another, too.",
        type=click.Choice(("on", "off")),
    ),
    org=False,
)
def set_(name: str, registration: str | None, only: str | None) -> Answer:
    """Say how agents come into the organisation NAME, and who reaches them; without an option it shows that."""
    choose_org(name)
    with connect() as client:
        if registration or only:
            said = {} if only is None else {"grants_only": only == "on"}
            admitted = client.admit(registration=registration or "", **said)
        else:
            admitted = client.admission()
    reached = "by grants alone" if admitted["grants_only"] else "by one another, and by grants"
    return admitted, f"registration {admitted['registration']}; agents are reached {reached}"


@command.command("remove", short_help="End an organisation for ever.")
@answers(_named, "--yes: It is meant: there is no way back.", org=False)
def remove(name: str, yes: bool) -> Answer:
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
    said = f"removed {name}; its files are kept in {one_line(folder)}"
    return {"name": name, "folder": folder}, said


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
