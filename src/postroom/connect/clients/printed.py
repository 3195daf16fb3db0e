"""Clients whose files `connect` does not write: the entry of the MCP server, for the person to put there.

Their sessions speak and ask for their mail; nothing brings it to them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from postroom.connect.clients.base import SERVER, Installed

PLACES: Mapping[str, str] = {
    "copilot": "~/.copilot/mcp-config.json",
    "qwen": "~/.qwen/settings.json",
    "cursor": "~/.cursor/mcp.json",
    "mcp": "the file where your MCP client has its servers",
}
"""Where the entry goes, by the client; `mcp` is any other one."""


def entry(name: str, installed: Installed) -> str:
    """The entry as JSON."""
    server = installed.server(name)
    if name == "copilot":
        server = {"type": "local", **server, "tools": ["*"]}
    return json.dumps({"mcpServers": {SERVER: server}}, indent=2)
