"""OpenCode: a plugin in a file of our own, which adds the MCP server while OpenCode runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from postroom.connect.clients.base import SERVER, Client, Home, Installed, Remark, home_of
from postroom.connect.edits import OwnFile
from postroom.connect.writing import Part
from postroom.templates.programs import Machine

NAME = "opencode"

_ADDED = ("package.json", "package-lock.json", "node_modules", ".gitignore")


def _parts(home: Path, installed: Installed) -> list[Part]:
    text = files("postroom.connect.clients").joinpath("opencode.js").read_text()
    plugin = text.replace('"@HOOK@"', json.dumps(str(installed.hook)))
    return [Part(home / "plugins" / f"{SERVER}.js", OwnFile(plugin.encode()))]


def _remarks(home: Home) -> list[Remark]:
    if home.machine.env.get("OPENCODE_PURE"):
        return [Remark("settings", "OPENCODE_PURE switches plugins off", well=False)]
    return []


def _adds(home: Path) -> Sequence[str]:
    """What OpenCode fetches beside a plugin."""
    return [f"{home / name}" for name in _ADDED if (home / name).exists()]


def _home(machine: Machine) -> Path:
    if machine.env.get("XDG_CONFIG_HOME", ""):
        return home_of(machine, "XDG_CONFIG_HOME") / "opencode"
    return home_of(machine, "", ".config", "opencode")


OPENCODE = Client(
    name=NAME,
    title="OpenCode",
    program="opencode",
    tried=("1.18.33",),
    home=_home,
    parts=_parts,
    steps=("Start OpenCode anew.",),
    remarks=_remarks,
    adds=_adds,
)
