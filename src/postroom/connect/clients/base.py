"""What `connect` has to know of a client: where its files are, what is written there, what to do next."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from postroom.connect import places
from postroom.connect.dialects import DIALECTS
from postroom.connect.mailbox import Kind
from postroom.connect.writing import Part
from postroom.errors import EnvironmentFault
from postroom.templates.programs import Machine

SERVER = "postroom"
"""Name of the MCP server and of folders of our own."""

HOOK_SECONDS = 10
"""Time-out of a hook; it answers at once."""

ASKING_SECONDS = 75
"""Time-out of the hook that waits for the answer of a person elsewhere."""

COMMENT = "written by `postroom connect`, taken out by `postroom disconnect`"


@dataclass(frozen=True, slots=True)
class Installed:
    """What of Postroom the files of clients name.

    Attributes:
        hook: the file that hooks and MCP servers run.
        approvals: clients whose permissions are asked for elsewhere, too.
    """

    hook: Path
    approvals: Collection[str] = ()

    def mark(self, client: str) -> str:
        """What each command of ours has, and no other."""
        return f"exec sh {shlex.quote(str(self.hook))} {client} "

    def handler(self, client: str, event: str, seconds: int = HOOK_SECONDS) -> dict[str, Any]:
        """A hook of one event, as Claude Code and Codex write it."""
        command = places.hook_command(client, event)
        return {"type": "command", "command": command, "timeout": seconds}

    def handlers(self, client: str) -> dict[str, dict[str, Any]]:
        """The hooks of all its events."""
        found = {event: self.handler(client, event) for event in events_of(client)}
        if client in self.approvals and (asks := DIALECTS[client].asks):
            found[asks] = self.handler(client, asks, ASKING_SECONDS)
        return found

    def server(self, client: str) -> dict[str, Any]:
        """The entry of the MCP server."""
        return {"command": "sh", "args": [str(self.hook), client, "mcp"]}


@dataclass(frozen=True, slots=True)
class Home:
    """A home that is looked at."""

    path: Path
    machine: Machine
    installed: Installed


@dataclass(frozen=True, slots=True)
class Remark:
    """Something about a home for `doctor connect`.

    Attributes:
        well: it is as it should be.
        remedy: what mends it; with none it is only worth knowing.
    """

    what: str
    detail: str
    well: bool = True
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Client:
    """A client that can be connected.

    Attributes:
        title: its name for people.
        program: as it is called in a shell.
        tried: versions that were run with what is written.
        home: its folder; raises EnvironmentFault for a user without a home.
        parts: what is written there.
        steps: what the person does next, a sentence each.
        asks: what becomes of its own question while a permission is asked for elsewhere; "" where none can be.
        remarks: what of its settings hinders or helps.
        afterwards: what the person does after `disconnect`, a sentence each.
        adds: what the client itself adds to its files for ours, by the home.
    """

    name: str
    title: str
    program: str
    tried: tuple[str, ...]
    home: Callable[[Machine], Path]
    parts: Callable[[Path, Installed], list[Part]]
    steps: tuple[str, ...]
    remarks: Callable[[Home], list[Remark]]
    afterwards: tuple[str, ...] = ()
    adds: Callable[[Path], Sequence[str]] = lambda _: ()
    asks: str = ""


def events_of(client: str) -> list[str]:
    """The events of the client that are hooked: those that say something, without what the end of a batch says."""
    dialect = DIALECTS[client]
    return [
        name
        for name, kind in dialect.kinds.items()
        if not (dialect.batches and kind is Kind.AFTER_TOOL)
    ]


def home_of(machine: Machine, variable: str, *usual: str) -> Path:
    """The folder that the variable names, else the usual one below the person's home.

    Raises:
        EnvironmentFault: there is no home.
    """
    if chosen := machine.env.get(variable, ""):
        return (machine.folder / chosen).absolute()
    if machine.home is None:
        raise EnvironmentFault("there is no home folder", remedy="set HOME")
    return machine.home.joinpath(*usual)


def said_in(path: Path) -> Mapping[str, Any]:
    """What a JSON file of settings says; nothing for one that is not there or cannot be read."""
    try:
        said = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}
