"""Claude Code: a plugin in a folder of our own, which it loads by itself; no file of the user's is touched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from postroom.connect.clients.base import (
    SERVER,
    Client,
    Home,
    Installed,
    Remark,
    home_of,
    said_in,
)
from postroom.connect.edits import OwnFile
from postroom.connect.json_text import whole
from postroom.connect.writing import Part

NAME = "claude"

WAKING = ("SessionStart", "Stop")
"""Events at which a hook begins to wait for mail: the session is idle after them."""

WAITING_SECONDS = 7 * 24 * 3600
"""As long as the address of a session that nobody hears."""

MANAGED = Path("/etc/claude-code/managed-settings.json")

WOKEN = "Postroom has woken this session: mail has come"
"""What the person sees of a wake; without it "Stop hook feedback", as if something had failed."""

_FORBIDS = ("disableAllHooks", "allowManagedHooksOnly", "allowManagedMcpServersOnly")


def _parts(home: Path, installed: Installed) -> list[Part]:
    folder = home / "skills" / SERVER
    manifest = {"name": SERVER, "description": "Mail of the post room for this session."}
    servers = {"mcpServers": {SERVER: installed.server(NAME)}}
    return [
        Part(folder / ".claude-plugin" / "plugin.json", OwnFile(whole(manifest))),
        Part(folder / "hooks" / "hooks.json", OwnFile(whole({"hooks": _hooks(installed)}))),
        Part(folder / ".mcp.json", OwnFile(whole(servers))),
    ]


def _hooks(installed: Installed) -> dict[str, list[dict[str, Any]]]:
    hooks = {event: [handler] for event, handler in installed.handlers(NAME).items()}
    for event in WAKING:
        waiting = installed.handler(NAME, "wait", WAITING_SECONDS)
        hooks[event].append({**waiting, "asyncRewake": True, "rewakeSummary": WOKEN})
    return {event: [{"hooks": handlers}] for event, handlers in hooks.items()}


def _remarks(home: Home) -> list[Remark]:
    remarks = []
    for path in (
        MANAGED,
        *sorted(MANAGED.with_suffix(".d").glob("*.json")),
        home.path / "settings.json",
    ):
        said = said_in(path)
        found = [name for name in _FORBIDS if said.get(name) is True]
        if "skills-dir" in str(said.get("blockedMarketplaces", "")):
            found.append("blockedMarketplaces")
        remarks += [
            Remark("settings", f"{path} says {name}", well=False, remedy="ask who manages it")
            for name in found
        ]
    return remarks or [Remark("settings", "nothing there forbids hooks or the server")]


CLAUDE = Client(
    name=NAME,
    title="Claude Code",
    program="claude",
    tried=("2.1.330", "2.1.331"),
    home=lambda machine: home_of(machine, "CLAUDE_CONFIG_DIR", ".claude"),
    parts=_parts,
    steps=("Start Claude Code anew, or type /reload-plugins in a session that is open.",),
    remarks=_remarks,
    asks="Claude Code shows its own question at once, and the first answer counts.",
    afterwards=(
        "A session that is open says that the plugin is gone: /reload-plugins there, or start it anew.",
    ),
)
