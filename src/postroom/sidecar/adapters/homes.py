"""The homes of coding agents: what each reads below its home folder, and what makes it speak a protocol. Pure.

The same programs run with the adapter `acp` and with one of their own (`gemini`, `opencode`, `goose`). Which program a
command starts is told by its file name. Settings switch off what would reach for hosts other than the model's:
telemetry, updates, remote lists. The address of the model, its name and the key are the template's, by variables.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from postroom.protocol.template import McpServer
from postroom.sidecar.adapters.turns import Setup

_ADDRESS = re.compile(r"@[^\s,;:!?()]*[^\s,;:!?().]")
"""What Gemini CLI takes for the name of a file in its instructions."""


LAUNCHERS = frozenset({"bun", "env", "node", "npx"})
"""Programs that start the one that their first argument names."""


class Home:
    """The home of a program that Postroom knows nothing of; it reads its instructions in its first prompt.

    Attributes:
        acp: what makes the program speak ACP.
        instructions: the file in which it reads instructions, below its home; "" for none.
    """

    acp: tuple[str, ...] = ()
    instructions = ""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup

    def files(self) -> dict[str, str]:
        """Settings and instructions: path below the home to content."""
        files = self.settings()
        if self.instructions and self.setup.instructions:
            files[self.instructions] = self.written(self.setup.instructions.rstrip() + "\n")
        return files

    def written(self, instructions: str) -> str:
        """The instructions as the program's file has to have them."""
        return instructions

    def settings(self) -> dict[str, str]:
        """The settings alone."""
        return {}

    def environment(self) -> dict[str, str]:
        """Variables for what no file sets."""
        return {}

    def acp_command(self) -> tuple[str, ...]:
        """The template's command, with what makes the program speak ACP where it does not say so itself."""
        command = self.setup.command
        return command if set(self.acp) & set(command) else (*command, *self.acp)

    def spoken(self) -> str:
        """The instructions for the first prompt of a session; "" where the program reads them in a file."""
        return "" if self.instructions else self.setup.instructions


class GeminiHome(Home):
    """Gemini CLI (its docs/reference/configuration.md)."""

    acp = ("--acp",)
    folder = ".gemini"
    instructions = ".gemini/GEMINI.md"

    def settings(self) -> dict[str, str]:
        """`settings.json`."""
        settings = {
            "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False},
            "privacy": {"usageStatisticsEnabled": False},
            "telemetry": {"enabled": False},
            # The folder is the worker's own, and the wall around it is the sandbox.
            "security": {
                "auth": {"selectedType": "gemini-api-key"},
                "folderTrust": {"enabled": False},
            },
            "mcpServers": {server.name: _server_of_gemini(server) for server in self.setup.mcps},
        }
        return {f"{self.folder}/settings.json": _json(settings)}

    def written(self, instructions: str) -> str:
        """Each `@nick` as code: Gemini CLI takes any other for the name of a file to read in."""
        pieces = instructions.split("`")
        pieces[::2] = [_ADDRESS.sub(r"`\g<0>`", piece) for piece in pieces[::2]]
        return "`".join(pieces)

    def environment(self) -> dict[str, str]:
        """Without the relaunch there is one process, so that a signal reaches the one that works."""
        return {"GEMINI_CLI_NO_RELAUNCH": "true", "GEMINI_CLI_TRUST_WORKSPACE": "true"}


class QwenHome(GeminiHome):
    """Qwen Code, which was Gemini CLI once; from its description only."""

    folder = ".qwen"
    instructions = ".qwen/QWEN.md"

    def settings(self) -> dict[str, str]:
        """`settings.json`, of which the way to log in is the user's."""
        settings = {
            "general": {"disableAutoUpdate": True},
            "privacy": {"usageStatisticsEnabled": False},
            "telemetry": {"enabled": False},
            "mcpServers": {server.name: _server_of_gemini(server) for server in self.setup.mcps},
        }
        return {f"{self.folder}/settings.json": _json(settings)}

    def environment(self) -> dict[str, str]:
        """None."""
        return {}


class OpenCodeHome(Home):
    """OpenCode (https://opencode.ai/docs/config)."""

    acp = ("acp",)
    instructions = ".config/opencode/AGENTS.md"

    def settings(self) -> dict[str, str]:
        """`opencode.json`; what the template says in `OPENCODE_CONFIG_CONTENT` is put over it."""
        asked = "allow" if self.setup.autonomous else "ask"
        settings = {
            "$schema": "https://opencode.ai/config.json",
            "autoupdate": False,
            "share": "disabled",
            "permission": dict.fromkeys(("edit", "bash", "webfetch"), asked),
            "mcp": {server.name: _server_of_opencode(server) for server in self.setup.mcps},
        }
        return {".config/opencode/opencode.json": _json(settings)}

    def environment(self) -> dict[str, str]:
        """No remote lists, updates, downloads or plug-ins."""
        names = ("AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS", "SHARE")
        return {f"OPENCODE_DISABLE_{name}": "1" for name in names}


class GooseHome(Home):
    """Goose (https://block.github.io/goose/docs/guides); from its description only."""

    acp = ("acp",)
    instructions = ".config/goose/.goosehints"

    def settings(self) -> dict[str, str]:
        """`config.yaml`, written as JSON, which is YAML."""
        extensions = {server.name: _server_of_goose(server) for server in self.setup.mcps}
        extensions["developer"] = {
            "type": "builtin",
            "name": "developer",
            "enabled": True,
            "timeout": 300,
        }
        return {".config/goose/config.yaml": _json({"extensions": extensions})}

    def environment(self) -> dict[str, str]:
        """Whether it asks; no keyring, no telemetry."""
        return {
            "GOOSE_MODE": "auto" if self.setup.autonomous else "approve",
            "GOOSE_DISABLE_KEYRING": "1",
            "GOOSE_TELEMETRY_ENABLED": "false",
        }


_HOMES: Mapping[str, type[Home]] = {
    "gemini": GeminiHome,
    "goose": GooseHome,
    "opencode": OpenCodeHome,
    "qwen": QwenHome,
}


def home_of(setup: Setup, usual: type[Home] = Home) -> Home:
    """The home of the program that the command starts; a `usual` one where its name says nothing."""
    return _HOMES.get(program_in(setup.command), usual)(setup)


def program_in(command: tuple[str, ...]) -> str:
    """The name of the program that a command starts, without folder and ending, also behind a launcher."""
    names = [PurePosixPath(word).stem for word in command if not word.startswith("-")]
    return next((name for name in names[:2] if name not in LAUNCHERS), "")


def _server_of_gemini(server: McpServer) -> dict[str, Any]:
    if server.url:
        return {"httpUrl": server.url}
    program, *arguments = server.command
    return {"command": program, "args": arguments, "env": dict(server.env)}


def _server_of_opencode(server: McpServer) -> dict[str, Any]:
    if server.url:
        return {"type": "remote", "url": server.url, "enabled": True}
    return {
        "type": "local",
        "command": list(server.command),
        "environment": dict(server.env),
        "enabled": True,
    }


def _server_of_goose(server: McpServer) -> dict[str, Any]:
    common = {"name": server.name, "enabled": True, "timeout": 300}
    if server.url:
        return {"type": "streamable_http", "uri": server.url, **common}
    program, *arguments = server.command
    return {
        "type": "stdio",
        "cmd": program,
        "args": arguments,
        "envs": dict(server.env),
        **common,
    }


def _json(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"
