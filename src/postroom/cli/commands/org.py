"""`postroom org`: create, list and remove organisations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from postroom.cli.completion import orgs
from postroom.cli.options import connect, json_option, state_option
from postroom.cli.output import print_json, print_table
from postroom.errors import EnvironmentFault, InvalidInput
from postroom.lines.words import Cell
from postroom_a2a.text import one_line

if TYPE_CHECKING:
    from postroom.protocol.shapes import Org

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
