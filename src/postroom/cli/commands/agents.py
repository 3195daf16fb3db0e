"""`postroom agents`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from postroom.cli.options import connect, json_option, state_option
from postroom.cli.output import Cell, print_json, print_table
from postroom_a2a.text import one_line

if TYPE_CHECKING:
    from postroom.protocol.shapes import Listed

HEAD = ("NICK", "KIND", "STATE", "SKILLS", "DESCRIPTION")


@click.command("agents")
@click.option("--skill", default="", metavar="S", help="Only agents that have this skill.")
@json_option
@state_option()
def command(skill: str, as_json: bool) -> None:
    """List everybody with an address, and what their Agent Cards say."""
    with connect() as client:
        found = client.agents(skill=skill)
    if as_json:
        print_json({"agents": found})
    elif found:
        print_table(HEAD, [_row(agent) for agent in found], cut=("DESCRIPTION", "SKILLS"))
    else:
        click.echo(f"nobody has the skill {one_line(skill, 80)}")


def _row(agent: Listed) -> list[Cell]:
    card = agent["card"]
    skills = ", ".join(skill["id"] for skill in card["skills"]) if card else ""
    return [
        Cell(f"@{agent['nick']}"),
        Cell(agent["kind"]),
        _state(agent["online"]),
        Cell(one_line(skills, 40) or "-"),
        Cell(one_line(card["description"], 80) if card else ""),
    ]


def _state(online: bool | None) -> Cell:
    if online is None:
        return Cell("-")
    return Cell("online", "green") if online else Cell("offline", dim=True)
