"""`postroom connect` and `disconnect`: sessions of coding agents in a person's own terminals get an address."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from postroom.cli.options import (
    chosen_login,
    chosen_org,
    connect,
    json_option,
    state_folder,
    state_option,
)
from postroom.cli.output import print_json, print_table, terminal_width
from postroom.errors import Conflict, InvalidInput, NotFound, PostroomError
from postroom.lines.text import Cell
from postroom_a2a.text import one_line, printable

if TYPE_CHECKING:
    from pathlib import Path

    from postroom.connect.clients.base import Client, Installed
    from postroom.connect.places import Settings
    from postroom.connect.writing import Receipt, Step, Undone

EXAMPLES = """\b
Examples:
  postroom connect claude
  postroom connect codex --wake-from reviewer,workers
  postroom connect cursor --print
"""


def _names(_: click.Context, __: click.Parameter, value: str | None) -> tuple[str, ...] | None:
    """Nicks, `workers` or `all`; `none` for nobody."""
    if value is None:
        return None
    from postroom.protocol.ids import check_name

    words = [word.strip().removeprefix("@") for word in value.split(",") if word.strip()]
    return () if words == ["none"] else tuple(check_name(word, "agent") for word in words)


def _known(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    from postroom.connect.clients import CLIENTS

    return [name for name in CLIENTS if name.startswith(incomplete)]


@click.command("connect", epilog=EXAMPLES)
@click.argument("client", default="", shell_complete=_known)
@click.option("--print", "printing", is_flag=True, help="Show what to write, and write nothing.")
@click.option("--yes", "-y", is_flag=True, help="Write it without asking.")
@click.option(
    "--wake-from",
    metavar="NAMES",
    callback=_names,
    help="Who else may wake a session, by comma: nicks, `workers`, `all`, `none`.",
)
@click.option(
    "--mute",
    metavar="NAMES",
    callback=_names,
    help="Whose mail waits until it is asked for, by comma: nicks, `workers`, `all`, `none`.",
)
@click.option(
    "--headless/--no-headless",
    default=None,
    help="Runs that nobody watches (claude -p) have an address, too; off by default.",
)
@click.option(
    "--claim",
    "code",
    metavar="CODE",
    help="Claim the key that an agent of yours has asked for; it goes into a file of yours.",
)
@click.option(
    "--approvals/--no-approvals",
    default=None,
    help="What a session asks you is asked in the post room, too; off by default.",
)
@json_option
@state_option()
def command(
    client: str,
    printing: bool,
    yes: bool,
    wake_from: tuple[str, ...] | None,
    mute: tuple[str, ...] | None,
    headless: bool | None,
    code: str | None,
    approvals: bool | None,
    as_json: bool,
) -> None:
    """Give each session of CLIENT in your terminals an address: claude, codex, gemini or opencode.

    It shows what it will write into the client's home, and asks. No key is in what it writes. `postroom disconnect`
    takes it back, and `postroom doctor connect` says whether it works. For other MCP clients --print shows the entry:
    copilot, qwen, cursor, or mcp for any.

    Without CLIENT it lists what is connected. The sessions of all clients have one post room: the one of the last
    `connect`. `postroom connect run` is the process that the first hook begins.
    """
    if client == "run":
        from postroom.connect.__main__ import main

        sys.exit(main())
    if code is not None:
        _claim(code, as_json=as_json)
        return
    if not client:
        _list(as_json=as_json)
        return
    from postroom.connect import places
    from postroom.connect.clients import CLIENTS
    from postroom.connect.clients.base import Installed
    from postroom.connect.clients.printed import PLACES

    said = {"wake_from": wake_from, "mute": mute, "headless": headless}
    chosen = {name: value for name, value in said.items() if value is not None}
    settings = replace(with_post_room(places.read_settings()), **chosen)
    if approvals is not None:
        settings = replace(settings, approvals=_asking(settings, client, on=approvals))
    installed = Installed(places.hook(), settings.approvals)
    if client in CLIENTS:
        how = _How(printing=printing, yes=yes, as_json=as_json)
        _connect(CLIENTS[client], installed, settings, how)
    elif client in PLACES and printing:
        _print_entry(client, installed, settings)
    elif client in PLACES:
        raise InvalidInput(
            f"the files of {client} are not written here",
            remedy=f"the entry for it: postroom connect {client} --print",
        )
    else:
        raise NotFound(
            f"there is no client {one_line(client, 40)!r}",
            remedy=f"one of: {', '.join([*CLIENTS, *PLACES])}",
        )


def _claim(code: str, *, as_json: bool) -> None:
    from postroom.connect import places
    from postroom.connect.claiming import claim

    with connect() as client:
        claimed = claim(client, code, places.folder())
    if as_json:
        print_json({"uid": claimed.uid, "nick": claimed.nick, "file": str(claimed.file)})
    else:
        file = one_line(str(claimed.file))
        click.echo(f"the key of @{one_line(claimed.nick)} is in {file}, which only you can read")


def _asking(settings: Settings, client: str, *, on: bool) -> tuple[str, ...]:
    """The clients whose permissions are asked for in the post room, with or without this one."""
    from postroom.connect.clients import CLIENTS

    if on and (client not in CLIENTS or not CLIENTS[client].asks):
        names = ", ".join(name for name, each in CLIENTS.items() if each.asks)
        raise InvalidInput(
            f"{one_line(client, 40)} lets nobody else answer what it asks",
            remedy=f"--approvals is for {names}",
        )
    others = {name for name in settings.approvals if name != client}
    return tuple(sorted(others | {client} if on else others))


def with_post_room(settings: Settings) -> Settings:
    """The settings with the post room that this command is for.

    Raises:
        InvalidInput: it is the login of a program.
    """
    from postroom.settings import default_state

    login = chosen_login()
    if login is not None:
        if login.program:
            raise InvalidInput(
                f"the login {login.name!r} is that of a program, and sessions have a person",
                remedy="postroom login with your own key",
            )
        return replace(settings, login=login.name, state="", org=chosen_org() or login.org)
    state = state_folder()
    usual = state == default_state().absolute()
    return replace(settings, login="", state="" if usual else str(state), org=chosen_org())


@dataclass(frozen=True, slots=True)
class _How:
    printing: bool
    yes: bool
    as_json: bool


def _connect(client: Client, installed: Installed, settings: Settings, how: _How) -> None:
    from postroom.connect import writing
    from postroom.templates.programs import Machine

    home = client.home(Machine.here())
    parts = client.parts(home, installed)
    receipt = writing.receipt_of(client.name, home)
    try:
        steps = writing.plan(parts, receipt)
    except (InvalidInput, Conflict) as error:
        if not how.printing:
            raise
        click.echo(f"{one_line(error.message)}; what has to be in the files:", err=True)
        steps = [writing.Step(part.path, None, part.edit.put(None)) for part in parts]
    width = None if how.printing else terminal_width()
    cut = [_show(step, width) for step in (() if how.as_json else steps)]
    if how.as_json and how.printing:
        print_json(_record(client, home, steps))
    if how.printing:
        return
    if any(cut):
        click.echo(f"Long lines are cut here. All of it: postroom connect {client.name} --print")
    if steps and not how.yes:
        _ask(f"Write this into {one_line(str(home))}?")
    writing.write(parts, receipt)
    _keep(settings)
    if how.as_json:
        print_json(_record(client, home, steps))
        return
    done = "is connected" if steps else "was connected already, and nothing of it is to be changed"
    click.echo(f"{client.title} {done}: {one_line(str(home))}")
    for each in client.steps if steps else ():
        click.echo(f"  {each}")
    if client.name in settings.approvals:
        click.echo("  What a session asks you is in `postroom approvals`, too, for a minute.")
        click.echo(f"  {client.asks}")
        click.echo("  It can be allowed there with your PIN alone: postroom pin set")
    _say_room(settings)


def _record(client: Client, home: Path, steps: Sequence[Step]) -> dict[str, object]:
    changes = [
        {"path": str(step.path), "content": (step.new or b"").decode(errors="replace")}
        for step in steps
    ]
    return {"client": client.name, "home": str(home), "changes": changes}


def _keep(settings: Settings) -> None:
    """Keep what is chosen, and have the file there that clients run."""
    from postroom.connect import asking, places

    new = settings != places.read_settings()
    places.write_settings(settings)
    places.write_hook()
    if new:
        asking.end()


def _ask(question: str) -> None:
    if sys.stdin is None or not sys.stdin.isatty():
        raise InvalidInput("without a terminal nobody can be asked", remedy="--yes to write it")
    if not click.confirm(question, err=True):
        raise click.Abort


def _show(step: Step, width: int | None) -> bool:
    """Print a change as a comparison of lines, each cut to so many columns; whether one was cut."""
    from postroom.cli.status_lines import cut_line

    cut = False
    what = "new file" if step.old is None else "change of"
    click.echo(click.style(f"{what} {one_line(str(step.path))}", bold=True))
    old, new = (
        (content or b"").decode(errors="replace").splitlines() for content in (step.old, step.new)
    )
    for line in list(difflib.unified_diff(old, new, n=1, lineterm=""))[2:]:
        if not line.startswith("@@"):
            colour = {"+": "green", "-": "red"}.get(line[0])
            whole = f"  {printable(line)}"
            shown = whole if width is None or len(whole) <= width else cut_line(whole, width)
            cut = cut or shown != whole
            click.echo(click.style(shown, fg=colour))
    return cut


def _say_room(settings: Settings) -> None:
    """Say where the sessions' post room is, or that nothing answers there."""
    try:
        where = settings.place()().url
    except PostroomError as error:
        click.echo(
            f"{one_line(error.message)}: sessions get their address once there is one", err=True
        )
        click.echo(f"  try: {one_line(error.remedy)}", err=True)
        return
    click.echo(f"  Each session gets an address at {where} as it starts: postroom agents")


def _print_entry(client: str, installed: Installed, settings: Settings) -> None:
    from postroom.connect.clients.printed import PLACES, entry

    _keep(settings)
    click.echo(f"# for {PLACES[client]}", err=True)
    click.echo(entry(client, installed))


def _list(*, as_json: bool) -> None:
    from postroom.connect import writing
    from postroom.connect.clients import CLIENTS
    from postroom.templates.programs import Machine

    machine = Machine.here()
    homes: list[dict[str, Any]] = [
        {"client": client.name, "home": str(receipt.home), "connected": bool(receipt.written)}
        for client in CLIENTS.values()
        for receipt in writing.homes(client.name, client.home(machine))
    ]
    if as_json:
        print_json({"homes": homes})
        return
    rows = [
        [
            Cell(one["client"]),
            Cell("connected" if one["connected"] else "not connected"),
            Cell(one_line(one["home"])),
        ]
        for one in homes
    ]
    print_table(("CLIENT", "STATE", "HOME"), rows)


@click.command("disconnect")
@click.argument("client", shell_complete=_known)
@json_option
def disconnect(client: str, as_json: bool) -> None:
    """Take out what `postroom connect` has written for CLIENT, in all homes.

    A file that nobody else has changed gets the bytes that it had before; from another one only Postroom's part is
    cut. It exits with 5 if something had to stay.
    """
    from postroom.connect import places, writing
    from postroom.connect.clients import CLIENTS
    from postroom.connect.clients.base import Installed
    from postroom.templates.programs import Machine

    if client not in CLIENTS:
        raise NotFound(
            f"there is no client {one_line(client, 40)!r}", remedy=f"one of: {', '.join(CLIENTS)}"
        )
    known = CLIENTS[client]
    homes = writing.homes(client, known.home(Machine.here()))
    installed = Installed(places.hook(), places.read_settings().approvals)
    undone = [one for receipt in homes for one in _disconnect(known, receipt, installed)]
    if as_json:
        print_json({"files": [{**asdict(one), "path": str(one.path)} for one in undone]})
    else:
        _say_undone(known, [receipt.home for receipt in homes], undone)
    left = ", ".join(one_line(str(one.path)) for one in undone if one.left)
    if left:
        raise Conflict(
            f"not all could be taken out: {left}", remedy="look at it, and remove it by hand"
        )
    if not writing.receipts():
        installed.hook.unlink(missing_ok=True)


def _disconnect(client: Client, receipt: Receipt, installed: Installed) -> list[Undone]:
    from postroom.connect import writing

    return writing.undo(client.parts(receipt.home, installed), receipt)


def _say_undone(client: Client, homes: Sequence[Path], undone: Sequence[Undone]) -> None:
    for one in undone:
        why = f": {one.left}" if one.left else ""
        click.echo(one_line(f"{one.path} {one.said}{why}"))
        for name in one.named:
            click.echo(
                f"  {one_line(name)}, which Postroom had not written, is cut, too: it was below what is cut"
            )
    if not undone:
        click.echo(f"{client.title} is not connected: {', '.join(map(str, homes))}")
        return
    for home in homes:
        for name in client.adds(home):
            click.echo(one_line(f"{client.title} keeps its own {name}"))
    for each in client.afterwards:
        click.echo(f"  {each}")
