"""MCP servers of a template as they are reached from inside the sandbox. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from postroom.protocol.template import McpServer
from postroom.sidecar.variables import filled


def inside(
    servers: Iterable[McpServer], env: Mapping[str, str], outside: str
) -> tuple[McpServer, ...]:
    """The servers for the agent's configuration.

    A url becomes one at the gateway, which adds the credential, and `${NAME}` in a command or an environment is
    replaced as in `workstation.env`.

    Args:
        env: the agent's environment.
        outside: the base URL of the way out; "" where there is none.
    """
    return tuple(_inside(server, env, outside) for server in servers)


def _inside(server: McpServer, env: Mapping[str, str], outside: str) -> McpServer:
    scheme, _, rest = server.url.partition("://")
    return replace(
        server,
        command=tuple(filled(word, env) for word in server.command),
        env={name: filled(text, env) for name, text in server.env.items()},
        url=f"{outside}/{scheme}/{rest}" if server.url and outside else server.url,
    )
