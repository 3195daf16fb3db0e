"""The `postroom-agent` command: the local API as a program for agents that run shell commands."""

from __future__ import annotations

import sys


def main() -> int:
    """Entry point; what clients of MCP start again and again loads nothing of the rest."""
    if sys.argv[1:] == ["mcp"]:
        from postroom.agentcli.mcp import run

        return run()
    from postroom.agentcli.main import main as command

    return command()
