"""Codex: hooks behind those of others in `hooks.json`, and a table of the MCP server in `config.toml`.

Codex runs no hook before the person has approved it, and knows an approved one by its place and its definition.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from postroom.connect import toml_text
from postroom.connect.clients.base import (
    COMMENT,
    SERVER,
    Client,
    Home,
    Installed,
    Remark,
    home_of,
)
from postroom.connect.clients.codex_trust import trusted
from postroom.connect.edits import Hooks, Table
from postroom.connect.writing import Part
from postroom.errors import InvalidInput

NAME = "codex"

QUICK = ("Interrupt", "SessionEnd")
"""Events that Codex gives three seconds, and warns of more."""

MANAGED = Path("/etc/codex/requirements.toml")


def _parts(home: Path, installed: Installed) -> list[Part]:
    handlers = {
        event: installed.handler(NAME, event, 3) if event in QUICK else handler
        for event, handler in installed.handlers(NAME).items()
    }
    groups = {event: {"hooks": [handler]} for event, handler in handlers.items()}
    server = Table(("mcp_servers", SERVER), installed.server(NAME), COMMENT)
    return [
        Part(home / "hooks.json", Hooks(groups, installed.mark(NAME))),
        Part(home / "config.toml", server),
    ]


def _remarks(home: Home) -> list[Remark]:
    remarks = [
        Remark("settings", f"{path} switches hooks off", well=False, remedy="ask who manages it")
        for path in (MANAGED, home.path / "config.toml")
        if toml_text.table(_said(path), ("features", "hooks")) is False
    ]
    return remarks + trusted(home, home.installed.mark(NAME))


def _adds(home: Path) -> Sequence[str]:
    """The entries by which Codex remembers that a person has approved hooks of its `hooks.json`."""
    state = toml_text.table(_said(home / "config.toml"), ("hooks", "state"))
    file = str(home / "hooks.json")
    count = sum(name.startswith(f"{file}:") for name in state or ())
    return (
        [f'entries [hooks.state."…"] in {home / "config.toml"}, {count} of them'] if count else []
    )


def _said(path: Path) -> dict[str, object]:
    try:
        return toml_text.parsed(path.read_text())
    except (OSError, UnicodeDecodeError, InvalidInput):
        return {}


CODEX = Client(
    name=NAME,
    title="Codex",
    program="codex",
    tried=("0.169.0",),
    home=lambda machine: home_of(machine, "CODEX_HOME", ".codex"),
    parts=_parts,
    steps=(
        "Start Codex anew. It asks whether its new hooks are trusted: until you say so there, it runs none.",
        "Sessions of `codex exec` never ask; they skip hooks that are not trusted.",
    ),
    remarks=_remarks,
    adds=_adds,
    asks="Codex shows its own question only when nobody has answered there for a minute.",
)
