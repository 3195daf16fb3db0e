"""`postroom agents`: list and show who has an address; add and remove agents that Postroom does not run."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from postroom.cli.completion import agents
from postroom.cli.deciding import pin_of
from postroom.cli.options import connect, json_option, pin_file_option, state_option
from postroom.cli.output import print_json, print_table
from postroom.errors import EnvironmentFault, InvalidInput, NotFound
from postroom.lines.words import Cell, natural, span
from postroom.settings import DEFAULT_ORG
from postroom_a2a.text import one_line

if TYPE_CHECKING:
    from postroom.protocol.shapes import Listed, Remote

HEAD = ("NICK", "KIND", "STATE", "SKILLS", "DESCRIPTION")
KINDS = ("human", "worker", "external", "service")
SCOPES = ("read", "send", "task", "operate", "admin")


@click.group("agents", invoke_without_command=True)
@click.option("--skill", default="", metavar="S", help="Only agents that have this skill.")
@click.option("--kind", type=click.Choice(KINDS), help="Only agents of this kind.")
@json_option
@state_option()
@click.pass_context
def command(ctx: click.Context, skill: str, kind: str | None, as_json: bool) -> None:
    """List everybody with an address, and what their Agent Cards say.

    People, workers, and agents that Postroom does not run: those are added here.
    """
    if ctx.invoked_subcommand is None:
        _list(skill, kind or "", as_json)


@command.command("list", short_help="List everybody with an address.")
@click.option("--skill", default="", metavar="S", help="Only agents that have this skill.")
@click.option("--kind", type=click.Choice(KINDS), help="Only agents of this kind.")
@json_option
@state_option()
def list_(skill: str, kind: str | None, as_json: bool) -> None:
    """List everybody with an address, and what their Agent Cards say."""
    _list(skill, kind or "", as_json)


def _list(skill: str, kind: str, as_json: bool) -> None:
    with connect() as client:
        found = client.agents(skill=skill, kind=kind)
    if as_json:
        print_json({"agents": found})
    elif found:
        ordered = sorted(found, key=lambda agent: natural(agent["nick"]))
        print_table(HEAD, [_row(agent) for agent in ordered], cut=("DESCRIPTION", "SKILLS"))
    elif skill:
        click.echo(f"nobody has the skill {one_line(skill, 80)}")
    else:
        click.echo("nobody")


@command.command("show", short_help="Show one agent.")
@click.argument("agent", metavar="@NICK", shell_complete=agents)
@json_option
@state_option()
def show(agent: str, as_json: bool) -> None:
    """Show who @NICK is, whether it is there, and what it can do."""
    with connect() as client:
        found, server = client.agent(agent), client.server.url
    if as_json:
        print_json(found)
        return
    state = "online" if found["online"] else "offline"
    click.echo(f"@{found['nick']}: {found['kind']}, {state}")
    click.echo(f"uid          {found['uid']}")
    click.echo(f"last seen    {found['seen_at'] or '-'}")
    if found["kind"] != "human":
        org = "" if found["org"] == DEFAULT_ORG else f"/orgs/{found['org']}"
        click.echo(f"A2A          {server.rstrip('/')}{org}/a2a/{found['nick']}")
    for line in _called(agent, found["kind"]):
        click.echo(line)
    if (card := found["card"]) is None:
        return
    click.echo(f"description  {one_line(card['description'], 300)}")
    click.echo(f"takes        {one_line(', '.join(card['defaultInputModes']), 300)}")
    for skill in card["skills"]:
        click.echo(f"skill        {one_line(skill['id'])}: {one_line(skill['description'], 300)}")


@command.command("add", short_help="Give an agent that Postroom does not run an address and a key.")
@click.argument("nick", default="")
@click.option(
    "--a2a", "url", default="", metavar="URL", help="An agent of other people: an A2A server."
)
@click.option(
    "--name",
    default="",
    metavar="NICK",
    help="With --a2a: its nick; made of its name if not given.",
)
@click.option(
    "--credential",
    default="",
    metavar="NAME",
    help="With --a2a: the one of `postroom credential` that its requests have.",
)
@click.option(
    "--deadline",
    type=click.FloatRange(0),
    default=0.0,
    metavar="S",
    help="With --a2a: seconds that a task may take; a day if not given.",
)
@click.option("--external", "kind", flag_value="external", help="An agent of somebody else.")
@click.option("--service", "kind", flag_value="service", help="A program of yours.")
@click.option(
    "--card",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="What its Agent Card says of it (JSON).",
)
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice(SCOPES),
    help="Of its key; may be repeated.",
)
@click.option(
    "--key-file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the key there, for you alone, and do not show it.",
)
@click.option("--public", is_flag=True, help="Its card over HTTP is for everybody.")
@pin_file_option
@json_option
@state_option()
def add(
    nick: str,
    url: str,
    name: str,
    credential: str,
    deadline: float,
    kind: str | None,
    card: Path | None,
    public: bool,
    scopes: tuple[str, ...],
    key_file: Path | None,
    pin_file: str | None,
    as_json: bool,
) -> None:
    """Give the agent NICK an address, an inbox and a key, with which it calls the HTTP API.

    The key is shown once. Without --scope it may read, send, and take and give tasks.

    With --a2a the agent is called: tasks for it go to the A2A server at URL, by its card, and it needs no key.
    """
    if url:
        if kind or card or scopes or key_file:
            raise click.UsageError("--a2a goes with --name, --credential and --deadline alone.")
        _add_remote(url, name or nick, credential, deadline, as_json)
        return
    if not nick:
        raise click.UsageError("Say what it is called: NICK.")
    if kind is None:
        raise InvalidInput(
            "only agents that Postroom does not run are added",
            remedy=f"postroom agents add {nick} --external; a worker: postroom spawn FILE;"
            " an A2A server: postroom agents add --a2a URL",
        )
    said = _card(card) if card is not None else None
    file = _private(key_file) if key_file is not None else None
    try:
        with connect() as client:
            made = pin_of(pin_file).used(
                lambda known: client.add_agent(
                    nick, kind=kind, card=said, scopes=scopes, public=public, pin=known
                )
            )
    except BaseException:
        if key_file is not None and file is not None:
            os.close(file)
            key_file.unlink(missing_ok=True)
        raise
    if file is not None:
        with os.fdopen(file, "w") as opened:
            opened.write(made["key"].pop("key") + "\n")
    if as_json:
        print_json(made)
        return
    click.echo(f"added @{made['nick']} ({made['kind']}), uid {made['uid']}")
    if key_file is not None:
        click.echo(f"its key is in {one_line(str(key_file))}")
    else:
        click.echo(f"its key, shown this once: {made['key']['key']}")


def _add_remote(url: str, nick: str, credential: str, deadline: float, as_json: bool) -> None:
    with connect() as client:
        made = client.add_remote(
            url, nick=nick.removeprefix("@"), credential=credential, deadline=deadline
        )
    if as_json:
        print_json(made)
        return
    said = "added" if made["added"] else "there already is"
    click.echo(f"{said} @{made['nick']} ({made['kind']}), uid {made['uid']}")
    for line in _remote_lines(made["remote"]):
        click.echo(line)


def _remote_lines(remote: Remote) -> list[str]:
    how = "followed by stream" if remote["streams"] else "followed by poll"
    lines = [
        f"called at    {one_line(remote['address'], 300)}",
        f"speaks       {remote['binding']}, A2A {remote['version']}; {how}",
        f"deadline     {span(remote['deadline'])}",
    ]
    return [*lines, *([f"credential   {remote['credential']}"] if remote["credential"] else [])]


@command.command("remove", short_help="Take such an agent's address and keys away.")
@click.argument("agent", metavar="@NICK", shell_complete=agents)
@json_option
@state_option()
def remove(agent: str, as_json: bool) -> None:
    """Take the address and the keys of @NICK away for ever; what waits for it ends."""
    with connect() as client:
        gone = client.remove_agent(agent)
    if as_json:
        print_json(gone)
    else:
        click.echo(f"removed @{gone['nick']}")


def _called(agent: str, kind: str) -> list[str]:
    """Where an agent of other people is called; nothing for any other."""
    if kind != "external":
        return []
    try:
        with connect() as client:
            return _remote_lines(client.remote(agent)["remote"])
    except NotFound:
        return []


def _card(path: Path) -> dict[str, Any]:
    try:
        card = json.loads(path.read_bytes())
    except OSError as error:
        raise EnvironmentFault(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{path} is not JSON: {error}") from error
    if not isinstance(card, dict):
        raise InvalidInput(f"{path} is no Agent Card: it is not an object")
    return card


def _private(path: Path) -> int:
    """A new file that only its owner may read, before there is a key to lose."""
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise EnvironmentFault(f"{path} cannot be made: {error.strerror}") from error


def _row(agent: Listed) -> list[Cell]:
    card = agent["card"]
    skills = ", ".join(skill["id"] for skill in card["skills"]) if card else ""
    return [
        Cell(f"@{agent['nick']}"),
        Cell(agent["kind"]),
        Cell("online", "green") if agent["online"] else Cell("offline", dim=True),
        Cell(one_line(skills, 40) or "-"),
        Cell(one_line(card["description"], 80) if card else ""),
    ]
