"""`postroom people`."""

from __future__ import annotations

import time

import click

from postroom.cli.approvals.deciding import pin_file_option, pin_of
from postroom.cli.keying import expires_option, say_key, scopes_option
from postroom.cli.options import connect, json_option, state_option
from postroom.cli.output import print_json, print_table
from postroom.lines.words import Cell, ago, natural
from postroom_a2a.text import one_line

HEAD = ("NICK", "SINCE", "")


@click.group("people")
@state_option()
def command() -> None:
    """Add, list and remove people: each has an inbox, sends as themself, and sees what their key allows."""


@command.command("add", short_help="Give a person an address and a key.")
@click.argument("nick")
@scopes_option
@expires_option
@pin_file_option
@json_option
@state_option()
def add(
    nick: str,
    scopes: tuple[str, ...],
    expires_in: float | None,
    pin_file: str | None,
    as_json: bool,
) -> None:
    """Give the person NICK an address and a key; the key is the only line on standard output."""
    from postroom.client.calls import name_of

    with connect() as client:
        made = pin_of(pin_file).used(
            lambda known: client.add_person(
                name_of(nick), scopes=scopes, expires_in=expires_in, pin=known
            )
        )
    if as_json:
        print_json(made)
        return
    say_key(made["key"])
    click.echo("with it, on any machine: postroom login URL", err=True)


@command.command("list", short_help="List the people.")
@json_option
@state_option()
def listing(as_json: bool) -> None:
    """List the people."""
    with connect() as client:
        people = client.people()
    if as_json:
        print_json({"people": people})
        return
    rows = [
        [
            Cell(f"@{one_line(person['nick'], 64)}"),
            Cell(ago(person["created_at"], time.time())),
            Cell("owner" if person["owner"] else ""),
        ]
        for person in sorted(people, key=lambda person: natural(person["nick"]))
    ]
    print_table(HEAD, rows)


@command.command("remove", short_help="Take a person's address and keys away.")
@click.argument("nick")
@json_option
@state_option()
def remove(nick: str, as_json: bool) -> None:
    """Take the address and all keys of the person NICK away for ever; what they wrote stays."""
    with connect() as client:
        gone = client.remove_person(nick)
    if as_json:
        print_json(gone)
    else:
        click.echo(f"removed @{one_line(gone['nick'], 64)}; no key of theirs is valid any more")
