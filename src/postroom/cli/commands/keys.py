"""Keys, and the people who have them: `postroom keys` and `people`."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from postroom.cli.deciding import pin_of
from postroom.cli.declaring import Answer, answers, asks, parameter
from postroom.cli.options import chosen_login, connect, pin_file_option, state_option
from postroom.cli.output import print_table
from postroom.lines.text import Cell
from postroom.view.words import ago, natural, span
from postroom_a2a.text import one_line
from postroom_a2a.times import parse_time

if TYPE_CHECKING:
    from postroom.protocol.shapes import Key, NewKey, NewPerson, Person

COLOURS = {"valid": "green", "expired": "yellow", "revoked": "red"}

_SPAN = re.compile(r"([0-9]{1,6})([mhd])")
_SECONDS = {"m": 60.0, "h": 3600.0, "d": 86400.0}


class Span(click.ParamType):
    """A length of time: `30d`, `12h` or `45m`, in seconds."""

    name = "span"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The seconds."""
        if isinstance(value, float):
            return value
        found = _SPAN.fullmatch(str(value))
        if found is None or not int(found[1]):
            self.fail(f"{str(value)!r} is no length of time, such as 30d, 12h or 45m", param, ctx)
        return int(found[1]) * _SECONDS[found[2]]


SCOPES = "--scope scopes: What it may be used for; several times for several. Without it: read, send, task."
expires_option = parameter("--expires expires_in SPAN: When it ends: 30d, 12h, 45m.", type=Span())


def say_key(made: NewKey) -> None:
    """Print a key, alone on standard output, and beside it what it is."""
    agent = made["agent"]
    whose = f"@{one_line(agent['nick'], 64)}" if agent else made["id"]
    end = f", until {made['expires_at']}" if made["expires_at"] else ""
    may = ", ".join(made["scopes"])
    click.echo(f"key {made['id']} of {whose} ({may}{end}), shown this once:", err=True)
    click.echo(made["key"])


HEAD = ("KEY", "OF", "NAME", "STATE", "SCOPES", "USED", "ENDS")


@click.group("keys")
@state_option()
def command() -> None:
    """Make, list, replace and end API keys; list and rotate the keys that sign credentials.

    Whoever has an API key is who it was made for, with its scopes. It is shown once, when it is made.
    """


@command.command("create", short_help="Make an API key, and show it once.")
@asks(
    "keys.create",
    "--for agent @NICK: For somebody else than you.",
    "--name NAME: What it is for, such as laptop.",
    SCOPES,
    expires_option,
    pin_file_option,
)
def create(made: NewKey) -> None:
    """Make an API key; the key itself is the only line on standard output.

    A key of your own may do no more than the one that makes it, and ends no later. Keys for others need the scope
    admin.
    """
    say_key(made)


@command.command("list", short_help="List API keys, or the keys that sign credentials.")
@answers(
    "--for agent @NICK: Those of one agent.",
    "--all ended: Revoked ones, too.",
    "--signing: The public keys that credentials hang on, instead.",
)
def listing(agent: str, ended: bool, signing: bool) -> Answer:
    """List your API keys or, with the scope admin, everybody's. No list has a key itself in it."""
    with connect() as client:
        if signing:
            found = client.trusted_keys()
            lines = (f"{key['role']:<15} {key['state']:<9} {key['key']}" for key in found)
            return {"keys": found}, lines
        keys = client.api_keys(agent=agent, ended=ended)
    rows = [_row(key, time.time()) for key in keys]
    return {"keys": keys}, lambda: print_table(HEAD, rows, cut=("NAME", "SCOPES"), empty="no keys")


@command.command("rotate", short_help="Replace an API key, or a key that signs credentials.")
@answers(
    "key [KEY]",
    parameter("--agents kind: Instead, what signs workers.", flag_value="agents"),
    parameter("--account kind: Instead, what an account signs with.", flag_value="account"),
    parameter("--operator kind: Instead, what signs accounts.", flag_value="operator"),
    parameter("--proxy kind: Instead, the gateway's.", flag_value="proxy"),
    parameter(
        "--messages kind: Instead, what signs messages in the database.", flag_value="messages"
    ),
    pin_file_option,
)
def rotate(key: str, kind: str | None, pin_file: str | None) -> Answer:
    """Replace the API key KEY (an id of `keys list`, or operator), or without KEY the one in use.

    The former key is dead at once, and whatever it had opened is cut. With one of the first options it is a key that
    signs credentials: workers move to the new one without a gap, then the former counts no more. With --messages all
    messages are signed again.
    """
    if kind is not None:
        if key:
            raise click.UsageError("KEY and a kind of signing key are two things.")
        return _rotate_signing(kind)
    login = chosen_login()
    with connect() as client:
        own = client.me()["key"]
        made = pin_of(pin_file).used(lambda known: client.rotate_key(key or own, pin=known))
    kept = login is not None and (key or own) == own
    if login is not None and kept:
        _keep(login.name, made["key"])

    def say() -> None:
        say_key(made)
        if kept:
            click.echo("your login here has it already", err=True)

    return made, say


@command.command("revoke", short_help="End an API key at once.")
@asks("keys.revoke", "key")
def revoke(ended: Key) -> None:
    """End the API key KEY (an id of `keys list`): it opens nothing more, and what it had opened is cut."""
    click.echo(f"revoked: {ended['id']} of {_owner(ended)}")


def _row(key: Key, now: float) -> list[Cell]:
    ends = key["expires_at"]
    left = "never" if ends is None else f"in {span(parse_time(ends) - now)}"
    return [
        Cell(key["id"]),
        Cell(_owner(key)),
        Cell(one_line(key["name"], 40) or "-"),
        Cell(key["state"], COLOURS.get(key["state"])),
        Cell(",".join(key["scopes"])),
        Cell("-" if key["used_at"] is None else ago(key["used_at"], now)),
        Cell(left if key["state"] == "valid" else "-"),
    ]


def _owner(key: Key | NewKey) -> str:
    agent = key["agent"]
    return f"@{one_line(agent['nick'], 64)}" if agent else "-"


def _keep(name: str, key: str) -> None:
    """Let the login of that name have its new key."""
    from postroom.cli.commands.login import save
    from postroom.client import keychain, logins

    known = logins.read()
    login = known.entries[name]
    stored = "" if keychain.keep(login.place, key) else key
    entries = {**known.entries, name: replace(login, key=stored)}
    save(replace(known, entries=entries))


# Keys that sign credentials.


def _rotate_signing(kind: str) -> Answer:
    with connect() as client:
        rotated = client.rotate(kind)

    def say() -> None:
        click.echo(f"rotated: {', '.join(rotated['roles'])}")
        for step in rotated["steps"]:
            click.echo(f"  next: {one_line(step)}")
        for uid in rotated["cut"]:
            click.echo(f"  did not move in time and was cut: {one_line(uid)}", err=True)

    return rotated, say


PEOPLE_HEAD = ("NICK", "SINCE", "")


@click.group("people")
@state_option()
def people() -> None:
    """Add, list and remove people: each has an inbox, sends as themself, and sees what their key allows."""


@people.command("add", short_help="Give a person an address and a key.")
@asks("people.add", "nick", SCOPES, expires_option, pin_file_option)
def add_person(made: NewPerson) -> None:
    """Give the person NICK an address and a key; the key is the only line on standard output."""
    say_key(made["key"])
    click.echo("with it, on any machine: postroom login URL", err=True)


@people.command("list", short_help="List the people.")
@asks("people.list")
def list_people(people: list[Person]) -> None:
    """List the people."""
    rows = [
        [
            Cell(f"@{one_line(person['nick'], 64)}"),
            Cell(ago(person["created_at"], time.time())),
            Cell("owner" if person["owner"] else ""),
        ]
        for person in sorted(people, key=lambda person: natural(person["nick"]))
    ]
    print_table(PEOPLE_HEAD, rows)


@people.command("remove", short_help="Take a person's address and keys away.")
@asks("people.remove", "ref NICK")
def remove_person(gone: Person) -> None:
    """Take the address and all keys of the person NICK away for ever; what they wrote stays."""
    click.echo(f"removed @{one_line(gone['nick'], 64)}; no key of theirs is valid any more")
