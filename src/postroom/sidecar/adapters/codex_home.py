"""What Codex reads below its home: configuration, instructions, MCP servers. Pure.

The address of the model and its key are the template's, by arguments `-c` and by variables.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from postroom.protocol.template import McpServer
from postroom.sidecar.adapters.turns import Setup

FOLDER = ".codex"
INSTRUCTIONS = f"{FOLDER}/AGENTS.md"
CONFIG = f"{FOLDER}/config.toml"

_SETTINGS = """\
# Written by Postroom at each start.
check_for_update_on_startup = false
cli_auth_credentials_store = "file"
suppress_unstable_features_warning = true

[analytics]
enabled = false

[feedback]
enabled = false

[otel]
exporter = "none"
metrics_exporter = "none"
trace_exporter = "none"

[features]
default_mode_request_user_input = true
"""
_NAME = re.compile(r"[^A-Za-z0-9_-]+")


def files_of(setup: Setup) -> dict[str, str]:
    """Path below the home to content."""
    files = {CONFIG: _SETTINGS + "".join(_server(server) for server in setup.mcps)}
    return files | {INSTRUCTIONS: setup.instructions} if setup.instructions else files


def environment_of(setup: Setup) -> dict[str, str]:
    """The variable that names the folder."""
    return {"CODEX_HOME": f"{setup.home}/{FOLDER}"} if setup.home else {}


def _server(server: McpServer) -> str:
    lines = [f"\n[mcp_servers.{_NAME.sub('-', server.name)}]"]
    if server.url:
        lines.append(f"url = {_toml(server.url)}")
    else:
        program, *arguments = server.command
        lines += [f"command = {_toml(program)}", f"args = {_toml(arguments)}"]
        if server.env:
            lines.append(f"env = {_table(server.env)}")
    return "\n".join(lines) + "\n"


def _table(values: Mapping[str, str]) -> str:
    pairs = (f"{_toml(key)} = {_toml(value)}" for key, value in values.items())
    return f"{{ {', '.join(pairs)} }}"


def _toml(value: str | Sequence[str]) -> str:
    """A text or texts: TOML writes them as JSON does, but for one character."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
