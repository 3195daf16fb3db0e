"""`postroom agents`: list and show who has an address; add and remove agents that Postroom does not run."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from postroom.cli.deciding import pin_of
from postroom.cli.declaring import Answer, answers, asks, parameter
from postroom.cli.options import connect, pin_file_option
from postroom.cli.output import print_table
from postroom.errors import EnvironmentFault, InvalidInput, NotFound
from postroom.lines.text import Cell
from postroom.settings import DEFAULT_ORG
from postroom.view.sessions import standing, whereabouts
from postroom.view.words import natural, span
from postroom_a2a.text import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from postroom.protocol.shapes import Listed, Me, Remote

HEAD = ("NICK", "KIND", "STATE", "SKILLS", "DESCRIPTION")
_FOUND = (
    "agents.list",
    "--skill S: Only agents that have this skill.",
    "--kind: Only agents of this kind.",
)


@click.group("agents", invoke_without_command=True)
@asks(*_FOUND)
def command(found: list[Listed], skill: str) -> None:
    """List everybody with an address, and what their Agent Cards say.

    People, workers, and agents that Postroom does not run: those are added here.
    """
    _list(found, skill)


@command.command("list", short_help="List everybody with an address.")
@asks(*_FOUND)
def list_(found: list[Listed], skill: str) -> None:
    """List everybody with an address, and what their Agent Cards say."""
    _list(found, skill)


def _list(found: list[Listed], skill: str) -> None:
    ordered = sorted(found, key=lambda agent: natural(agent["nick"]))
    nobody = f"nobody has the skill {one_line(skill, 80)}" if skill else "nobody"
    print_table(HEAD, map(_row, ordered), cut=("DESCRIPTION", "SKILLS"), empty=nobody)


@command.command("show", short_help="Show one agent.")
@answers("agent @NICK")
def show(agent: str) -> Answer:
    """Show who @NICK is, whether it is there, and what it can do."""
    with connect() as client:
        found, server = client.agent(agent), client.server.url
    return found, _lines(found, agent, server)


def _lines(found: Listed, agent: str, server: str) -> Iterator[str]:
    yield f"@{found['nick']}: {found['kind']}, {'online' if found['online'] else 'offline'}"
    yield f"uid          {found['uid']}"
    yield f"last seen    {found['seen_at'] or '-'}"
    if email := found.get("unverified_email"):
        yield f"owner        {one_line(email, 254)}, as it says itself: nobody has checked it"
    if session := found.get("session"):
        state = standing(session, online=found["online"])
        yield f"session      {state}, {whereabouts(session, time.time())}"
    if found["kind"] != "human":
        org = "" if found["org"] == DEFAULT_ORG else f"/orgs/{found['org']}"
        yield f"A2A          {server.rstrip('/')}{org}/a2a/{found['nick']}"
    yield from _called(agent, found["kind"])
    if (card := found["card"]) is None:
        return
    yield f"description  {one_line(card['description'], 300)}"
    yield f"takes        {one_line(', '.join(card['defaultInputModes']), 300)}"
    for skill in card["skills"]:
        yield f"skill        {one_line(skill['id'])}: {one_line(skill['description'], 300)}"


@command.command("add", short_help="Give an agent that Postroom does not run an address and a key.")
@answers(
    "nick [NICK]",
    "--a2a url URL: An agent of other people: an A2A server.",
    "--name NICK: With --a2a: its nick; made of its name if not given.",
    "--credential NAME: With --a2a: the one of `postroom credential` that its requests have.",
    "--deadline S: With --a2a: seconds that a task may take; a day if not given.",
    parameter("--external kind: An agent of somebody else.", flag_value="external"),
    parameter("--service kind: A program of yours.", flag_value="service"),
    parameter(
        "--card FILE: What its Agent Card says of it (JSON).",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
    ),
    "--scope scopes: Of its key; may be repeated.",
    parameter(
        "--key-file FILE: Write the key there, for you alone, and do not show it.",
        type=click.Path(dir_okay=False, path_type=Path),
    ),
    "--public: Its card over HTTP is for everybody.",
    pin_file_option,
    of="agents.add agents.add_remote",
)
def add(
    nick: str,
    url: str,
    name: str,
    credential: str,
    deadline: float | None,
    kind: str | None,
    card: Path | None,
    public: bool,
    scopes: tuple[str, ...],
    key_file: Path | None,
    pin_file: str | None,
) -> Answer:
    """Give the agent NICK an address, an inbox and a key, with which it calls the HTTP API.

    The key is shown once. Without --scope it may read, send, and take and give tasks.

    With --a2a the agent is called: tasks for it go to the A2A server at URL, by its card, and it needs no key.
    """
    if url:
        if kind or card or scopes or key_file:
            raise click.UsageError("--a2a goes with --name, --credential and --deadline alone.")
        return _add_remote(url, name or nick, credential, deadline)
    if not nick:
        raise click.UsageError("Say what it is called: NICK.")
    if kind is None:
        raise InvalidInput(
            "only agents that Postroom does not run are added",
            remedy=f"postroom agents add {nick} --external; a worker: postroom spawn FILE;"
            " an A2A server: postroom agents add --a2a URL",
        )
    said = card_in(card) if card is not None else None
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
    added = f"added @{made['nick']} ({made['kind']}), uid {made['uid']}"
    if key_file is not None:
        return made, (added, f"its key is in {one_line(str(key_file))}")
    return made, (added, f"its key, shown this once: {made['key']['key']}")


def _add_remote(url: str, nick: str, credential: str, deadline: float | None) -> Answer:
    nick = nick.removeprefix("@")
    with connect() as client:
        made = client.add_remote(url, nick=nick, credential=credential, deadline=deadline)
    said = "added" if made["added"] else "there already is"
    about = f"{said} @{made['nick']} ({made['kind']}), uid {made['uid']}"
    return made, [about, *_remote_lines(made["remote"])]


def _remote_lines(remote: Remote) -> list[str]:
    how = "followed by stream" if remote["streams"] else "followed by poll"
    lines = [
        f"called at    {one_line(remote['address'], 300)}",
        f"speaks       {remote['binding']}, A2A {remote['version']}; {how}",
        f"deadline     {span(remote['deadline'])}",
    ]
    return [*lines, *([f"credential   {remote['credential']}"] if remote["credential"] else [])]


@command.command("rename", short_help="Give such an agent, or a session, another nick.")
@answers("agent @NICK", "nick @NEW")
def rename(agent: str, nick: str) -> Answer:
    """Call @NICK @NEW from now on; its mail comes all the same, and the old nick is free."""
    with connect() as client:
        done = client.rename_agent(agent, nick)
    return done, f"@{agent.removeprefix('@')} is @{done['nick']} now"


@command.command("give", short_help="Let such an agent belong to a person, or to nobody.")
@asks("agents.give", "ref @NICK", "owner [@PERSON]")
def give(given: Me, owner: str) -> None:
    """Let @NICK belong to @PERSON, whose grants cover it from then on; without @PERSON to nobody.

    What its owner before has let in for it ends.
    """
    whose = f"@{owner.removeprefix('@')}" if owner else "nobody"
    click.echo(f"@{given['nick']} belongs to {whose}")


@command.command("remove", short_help="Take such an agent's address and keys away.")
@asks("agents.remove", "ref @NICK")
def remove(gone: Me) -> None:
    """Take the address and the keys of @NICK away for ever; what waits for it ends."""
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


def card_in(path: Path) -> dict[str, Any]:
    """What a file says of an agent; raises EnvironmentFault or InvalidInput."""
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
    card, session = agent["card"], agent.get("session")
    if session is not None:
        state = standing(session, online=agent["online"])
        return [
            Cell(f"@{agent['nick']}"),
            Cell("session"),
            Cell(state, "green" if agent["online"] else None, dim=not agent["online"]),
            Cell("-"),
            Cell(whereabouts(session, time.time())),
        ]
    skills = ", ".join(skill["id"] for skill in card["skills"]) if card else ""
    return [
        Cell(f"@{agent['nick']}"),
        Cell(agent["kind"]),
        Cell("online", "green") if agent["online"] else Cell("offline", dim=True),
        Cell(one_line(skills, 40) or "-"),
        Cell(one_line(card["description"], 80) if card else ""),
    ]
