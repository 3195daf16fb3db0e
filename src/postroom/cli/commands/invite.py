"""`postroom invite` and `join`: how agents and people of others come in, from both sides."""

from __future__ import annotations

import getpass
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from postroom.cli import joins
from postroom.cli.commands.agents import card_in
from postroom.cli.commands.keys import SCOPES, Span
from postroom.cli.commands.login import fingerprint_in, kept, name_of, pinned, save
from postroom.cli.declaring import Answer, answers, asks, number_option, parameter
from postroom.cli.options import pin_file_option
from postroom.cli.output import print_table
from postroom.errors import CallerError, InvalidInput, PeerError, RequestTimeout
from postroom.lines.text import Cell
from postroom.protocol.limits import MAX_INVITE_USES
from postroom.view.words import span
from postroom_a2a.text import one_line
from postroom_a2a.times import parse_time

if TYPE_CHECKING:
    from postroom.client.logins import Login, Logins
    from postroom.protocol.invites import Link
    from postroom.protocol.shapes import Invite, Joined, NewInvite

COLOURS = {"valid": "green", "used": None, "expired": "yellow", "revoked": "red", "tried": "red"}
HEAD = ("INVITE", "FOR", "USES", "STATE", "SCOPES", "BY", "ENDS")
LONGEST_CODE = 64


@click.group("invite", invoke_without_command=True)
@asks(
    "invites.create",
    number_option("--uses N: How many may join by it.", click.IntRange(1, MAX_INVITE_USES), 1),
    parameter("--expires expires_in SPAN: When it ends: 7d (the default), 12h, 45m.", type=Span()),
    parameter("--person kind: For people; without it for agents.", flag_value="human"),
    SCOPES,
    pin_file_option,
)
def command(made: NewInvite) -> None:
    """Invite agents of others, or people: print a link and a code with which they join.

    Whoever has both joins, so pass the code on by another way than the link. It is shown once. Who has joined gets an
    address and a key of their own, with the scopes that are named here.
    """
    click.echo(f"link  {made['link']}")
    click.echo(f"code  {made['code']}")
    left = span(parse_time(made["expires_at"]) - time.time() + 30.0)  # as it was asked for
    often = "once" if made["uses"] == 1 else f"{made['uses']} times"
    click.echo(f"counts {often}, for {left}; the code is shown this once", err=True)
    click.echo("they type: postroom join LINK, and the code when it is asked for", err=True)


@command.command("list", short_help="List the invites.")
@asks("invites.list")
def list_(found: list[Invite]) -> None:
    """List the invites, the newest first; no list has a code in it."""
    now = time.time()
    rows = [
        [
            Cell(each["id"]),
            Cell("people" if each["kind"] == "human" else "agents"),
            Cell(str(each["uses"])),
            Cell(each["state"], COLOURS.get(each["state"])),
            Cell(",".join(each["scopes"])),
            Cell(f"@{one_line(each['made_by'])}" if each["made_by"] else "-"),
            Cell(_ends(each, now)),
        ]
        for each in found
    ]
    print_table(HEAD, rows, cut=("SCOPES",), empty="no invites")


@command.command("revoke", short_help="End an invite.")
@asks("invites.revoke", "invite ID")
def revoke(ended: Invite) -> None:
    """End the invite ID: nobody joins by it from now on. Who has joined stays."""
    click.echo(f"ended: invite {ended['id']}")


def _ends(invite: Invite, now: float) -> str:
    if invite["state"] != "valid":
        return "-"
    return f"in {span(parse_time(invite['expires_at']) - now)}"


EXAMPLES = """\b
Examples:
  postroom join https://box.example:4281/join/8f2c1a90b7d3e456
  postroom join LINK - --name alice < code
  postroom join https://open.example --name alice
"""


@click.command("join", epilog=EXAMPLES)
@answers(
    "url URL",
    "code [CODE]",
    "--name NICK: What to be called; your name on this machine if not given.",
    "--email ADDRESS: Of the owner. Nobody checks it, and nothing is sent there.",
    parameter(
        "--card FILE: What the Agent Card of an agent says (JSON).",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
    ),
    "--fingerprint SHA256: Of the authority to trust; a link may have it.",
    post_room=False,
)
def join(url: str, code: str, name: str, email: str, card: Path | None, fingerprint: str) -> Answer:
    """Join the post room of the invite URL with its CODE, and keep the key that comes of it.

    Others of this machine can see what is typed as CODE: leave it out and you are asked, or - takes it from standard
    input. Without an invite, URL is that of a post room that is open to all, which adds a suffix to your nick.

    The key is kept as `postroom login` does. If the answer is lost, the same again gives the same address and key.
    """
    from postroom.client.logins import read
    from postroom.client.pinning import given_fingerprint
    from postroom.protocol.invites import link_of

    link, logins = link_of(url), read()
    wanted = given_fingerprint(fingerprint) if fingerprint else link.fingerprint
    name, said = name or _own_name(), card_in(card) if card else None
    code = _code(code) if link.invite else ""
    authority = pinned(link.origin, wanted)
    what = f"{link.url} {name}"
    key = joins.begun(what)
    asked = {"display_name": name, "code": code, "owner_email": email, "card": said, "key": key}
    try:
        joined = _joined(link, authority, asked)
    except CallerError:  # nobody has joined
        joins.ended(what)
        raise
    login, logins = kept(logins, _login(logins, link, authority, joined))
    save(logins)
    joins.ended(what)
    record = {**joined, "key": {**joined["key"], "key": ""}, "login": login.name}
    return record, lambda: _say(login, joined)


def _joined(link: Link, authority: str, said: dict[str, Any]) -> Joined:
    """Ask the post room, over a connection that trusts the pinned authority alone."""
    from postroom.client.http import Client
    from postroom.client.locate import ServerAddress

    ca = "" if authority else os.environ.get("POSTROOM_CA", "")
    address = ServerAddress(link.origin.url, 0, "", ca, authority=authority)
    asked = {name: value for name, value in said.items() if value}
    try:
        with Client.on(lambda: address, link.org) as client:
            return client.join(**asked, **({"invite": link.invite} if link.invite else {}))
    except (RequestTimeout, PeerError) as error:
        error.remedy = "the same command again: nobody joins twice by that"
        raise


def _login(logins: Logins, link: Link, authority: str, joined: Joined) -> Login:
    """The login of who has joined; it takes the name of no other."""
    from postroom.client.logins import Login

    wanted = joined["nick"]
    if joined["kind"] == "human":
        wanted = name_of(link.origin.host, link.org)
    taken = {each for each in logins.entries if each == wanted or each.startswith(f"{wanted}-")}
    number, name = 1, wanted
    while name in taken or name == "local":
        number += 1
        name = f"{wanted[:60]}-{number}"
    return Login(
        name,
        link.origin.url,
        joined["key"]["key"],
        authority,
        fingerprint_in(authority),
        joined["nick"],
        link.org,
        joined["kind"],
    )


def _say(login: Login, joined: Joined) -> None:
    place = f"{login.url}, {login.org}" if login.org else login.url
    click.echo(f"you are @{one_line(joined['nick'])} at {place}")
    where = "the keyring of this system" if not login.key else "a file that only you can read"
    click.echo(f"the key is in {where}")
    if not login.program:
        click.echo(
            f"commands go there from now on ({login.name}); back: postroom login --use local"
        )
        click.echo("next: postroom status, postroom inbox, postroom send @NICK TEXT")
        return
    click.echo(f"next: postroom --url {login.name} inbox")
    click.echo(f"      postroom --url {login.name} send @NICK TEXT")
    if joined["joined"] == "open":
        click.echo("you reach who lets you in:")
        click.echo(f"      postroom --url {login.name} grants ask @NICK")
    click.echo(f"a program says Agent({login.name!r})")


def _own_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError) as error:
        raise InvalidInput("you have no name on this machine", remedy="--name NICK") from error


def _code(given: str) -> str:
    """The code: as it was given, or from a source that leaves no trace in a list of processes."""
    if given == "-" or (not given and not sys.stdin.isatty()):
        code = sys.stdin.readline(LONGEST_CODE + 2).strip()
    elif given:
        code = given.strip()
    else:
        code = click.prompt("code", hide_input=True, err=True).strip()
    if not code or len(code) > LONGEST_CODE:
        raise InvalidInput("that is no code of an invite", remedy="four groups of five letters")
    return code
