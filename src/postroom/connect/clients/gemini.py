"""Gemini CLI: an extension in a folder of our own; no file of the user's is touched.

Nothing can wake an idle session of it: its mail comes at its next tool, end of turn or prompt.
"""

from __future__ import annotations

from pathlib import Path

from postroom.connect.clients.base import (
    HOOK_SECONDS,
    SERVER,
    Client,
    Home,
    Installed,
    Remark,
    events_of,
    home_of,
    said_in,
)
from postroom.connect.edits import OwnFile
from postroom.connect.json_text import whole
from postroom.connect.writing import Part
from postroom.templates.programs import Machine

NAME = "gemini"

MANAGED = Path("/etc/gemini-cli/settings.json")

_FORBIDS = (
    ("admin", "extensions", "enabled"),
    ("admin", "mcp", "enabled"),
    ("hooksConfig", "enabled"),
)


def _parts(home: Path, installed: Installed) -> list[Part]:
    folder = home / "extensions" / SERVER
    manifest = {"name": SERVER, "version": "1.0.0", "mcpServers": {SERVER: installed.server(NAME)}}
    # Milliseconds.
    handlers = {
        event: {"name": f"{SERVER}-{event}", **installed.handler(NAME, event, HOOK_SECONDS * 1000)}
        for event in events_of(NAME)
    }
    hooks = {"hooks": {event: [{"hooks": [handler]}] for event, handler in handlers.items()}}
    return [
        Part(folder / "gemini-extension.json", OwnFile(whole(manifest))),
        Part(folder / "hooks" / "hooks.json", OwnFile(whole(hooks))),
    ]


def _remarks(home: Home) -> list[Remark]:
    system = Path(home.machine.env.get("GEMINI_CLI_SYSTEM_SETTINGS_PATH", "") or MANAGED)
    remarks = []
    for path in (system, home.path / "settings.json"):
        for keys in _FORBIDS:
            said = said_in(path)
            for key in keys:
                said = said.get(key) if isinstance(said, dict) else None
            if said is False:
                detail = f"{path} says {'.'.join(keys)}: false"
                remarks.append(Remark("settings", detail, well=False, remedy="ask who manages it"))
    return remarks or [Remark("settings", "nothing there forbids hooks or extensions")]


def _home(machine: Machine) -> Path:
    # The variable stands for the person's home, not for the folder in it.
    return home_of(machine, "GEMINI_CLI_HOME") / ".gemini"


GEMINI = Client(
    name=NAME,
    title="Gemini CLI",
    program="gemini",
    tried=("0.61.0",),
    home=_home,
    parts=_parts,
    steps=(
        "Start Gemini CLI anew.",
        "Nothing can wake an idle session of it: mail comes at its next activity, and senders are told so.",
    ),
    remarks=_remarks,
)
