"""`postroom keys`: API keys, and the keys that sign credentials."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from postroom.cli.approvals.deciding import pin_file_option, pin_of
from postroom.cli.keying import COLOURS, expires_option, say_key, scopes_option
from postroom.cli.options import chosen_login, connect, json_option, state_option
from postroom.cli.output import print_json, print_table
from postroom.lines.words import Cell, ago, span
from postroom_a2a.text import one_line
from postroom_a2a.times import parse_time

if TYPE_CHECKING:
    from postroom.client.http import Client
    from postroom.protocol.shapes import Key, NewKey

HEAD = ("KEY", "OF", "NAME", "STATE", "SCOPES", "USED", "ENDS")


@click.group("keys")
@state_option()
def command() -> None:
    """Make, list, replace and end API keys; list and rotate the keys that sign credentials.

    Whoever has an API key is who it was made for, with its scopes. It is shown once, when it is made.
    """


@command.command("create", short_help="Make an API key, and show it once.")
@click.option("--for", "agent", metavar="@NICK", default="", help="For somebody else than you.")
@click.option("--name", default="", metavar="NAME", help="What it is for, such as laptop.")
@scopes_option
@expires_option
@pin_file_option
@json_option
@state_option()
def create(
    agent: str,
    name: str,
    scopes: tuple[str, ...],
    expires_in: float | None,
    pin_file: str | None,
    as_json: bool,
) -> None:
    """Make an API key; the key itself is the only line on standard output.

    A key of your own may do no more than the one that makes it, and ends no later. Keys for others need the scope
    admin.
    """
    with connect() as client:
        made = pin_of(pin_file).used(
            lambda known: client.create_key(
                agent=agent, name=name, scopes=scopes, expires_in=expires_in, pin=known
            )
        )
    if as_json:
        print_json(made)
    else:
        say_key(made)


@command.command("list", short_help="List API keys, or the keys that sign credentials.")
@click.option("--for", "agent", metavar="@NICK", default="", help="Those of one agent.")
@click.option("--all", "ended", is_flag=True, help="Revoked ones, too.")
@click.option("--signing", is_flag=True, help="The public keys that credentials hang on, instead.")
@json_option
@state_option()
def listing(agent: str, ended: bool, signing: bool, as_json: bool) -> None:
    """List your API keys or, with the scope admin, everybody's. No list has a key itself in it."""
    with connect() as client:
        if signing:
            _list_signing(client, as_json=as_json)
            return
        keys = client.api_keys(agent=agent, ended=ended)
    if as_json:
        print_json({"keys": keys})
    elif keys:
        print_table(HEAD, [_row(key, time.time()) for key in keys], cut=("NAME", "SCOPES"))
    else:
        click.echo("no keys")


@command.command("rotate", short_help="Replace an API key, or a key that signs credentials.")
@click.argument("key", default="")
@click.option("--agents", "kind", flag_value="agents", help="Instead, what signs workers.")
@click.option(
    "--account", "kind", flag_value="account", help="Instead, what an account signs with."
)
@click.option("--operator", "kind", flag_value="operator", help="Instead, what signs accounts.")
@click.option("--proxy", "kind", flag_value="proxy", help="Instead, the gateway's.")
@pin_file_option
@json_option
@state_option()
def rotate(key: str, kind: str | None, pin_file: str | None, as_json: bool) -> None:
    """Replace the API key KEY (an id of `keys list`, or operator), or without KEY the one in use.

    The former key is dead at once, and whatever it had opened is cut. With one of the first options it is a key that
    signs credentials: workers move to the new one without a gap, then the former counts no more.
    """
    if kind is not None:
        if key:
            raise click.UsageError("KEY and a kind of signing key are two things.")
        _rotate_signing(kind, as_json=as_json)
        return
    login = chosen_login()
    with connect() as client:
        own = client.me()["key"]
        made = pin_of(pin_file).used(lambda known: client.rotate_key(key or own, pin=known))
    kept = login is not None and (key or own) == own
    if login is not None and kept:
        _keep(login.name, made["key"])
    if as_json:
        print_json(made)
    else:
        say_key(made)
        if kept:
            click.echo("your login here has it already", err=True)


@command.command("revoke", short_help="End an API key at once.")
@click.argument("key")
@json_option
@state_option()
def revoke(key: str, as_json: bool) -> None:
    """End the API key KEY (an id of `keys list`): it opens nothing more, and what it had opened is cut."""
    with connect() as client:
        ended = client.revoke_key(key)
    if as_json:
        print_json(ended)
    else:
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


def _list_signing(client: Client, *, as_json: bool) -> None:
    keys = client.trusted_keys()
    if as_json:
        print_json({"keys": keys})
        return
    for key in keys:
        click.echo(f"{key['role']:<15} {key['state']:<9} {key['key']}")


def _rotate_signing(kind: str, *, as_json: bool) -> None:
    with connect() as client:
        rotated = client.rotate(kind)
    if as_json:
        print_json(rotated)
        return
    click.echo(f"rotated: {', '.join(rotated['roles'])}")
    for step in rotated["steps"]:
        click.echo(f"  next: {one_line(step)}")
    for uid in rotated["cut"]:
        click.echo(f"  did not move in time and was cut: {one_line(uid)}", err=True)
