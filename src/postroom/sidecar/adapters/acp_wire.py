"""What stands in some messages of the Agent Client Protocol. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from postroom.protocol.template import McpServer
from postroom.sidecar.adapters.loose import Record, object_in, objects_in, text_in

ALLOWING = ("allow_once", "allow_always")
REJECTING = ("reject_once", "reject_always")
"""Kinds of the options of a permission request, the one that is chosen first."""


def outcome(options: Sequence[Record], kinds: Sequence[str]) -> dict[str, Any]:
    """The answer to a permission request: the option of the first of these kinds, `cancelled` where there is none."""
    by_kind = {text_in(option, "kind"): text_in(option, "optionId") for option in options}
    option = next((by_kind[kind] for kind in kinds if by_kind.get(kind)), "")
    chosen = {"outcome": "selected", "optionId": option} if option else {"outcome": "cancelled"}
    return {"outcome": chosen}


def said_by(error: Record) -> str:
    """The text of an error, with the details that some agents put below it."""
    text = text_in(error, "message") or "an error without a message"
    data = error.get("data")
    more = (
        data if isinstance(data, str) else text_in(object_in(error, "data"), "details", "message")
    )
    return f"{text}: {more}" if more and more not in text else text


def servers_for(
    mcps: Iterable[McpServer], capabilities: Record
) -> tuple[list[dict[str, Any]], list[str]]:
    """MCP servers as `session/new` has them, and the names of those that this agent cannot have."""
    by_url = object_in(capabilities, "mcpCapabilities").get("http") is True
    found: list[dict[str, Any]] = []
    refused = []
    for server in mcps:
        if not server.url:
            env = [{"name": name, "value": value} for name, value in server.env.items()]
            program, *arguments = server.command
            found.append({"name": server.name, "command": program, "args": arguments, "env": env})
        elif by_url:
            found.append({"type": "http", "name": server.name, "url": server.url, "headers": []})
        else:
            refused.append(server.name)
    return found, refused


def method_by_key(initialized: Record) -> str:
    """The id of the way to log in by a key from the environment; "" for none: the others need a person."""
    for method in objects_in(initialized, "authMethods"):
        ident = text_in(method, "id")
        if "api-key" in object_in(method, "_meta") or "api-key" in ident or "apikey" in ident:
            return ident
    return ""


def model_in(session: Record) -> str:
    """The model of a session that an agent opened; "" where it says none."""
    if named := text_in(object_in(session, "models"), "currentModelId"):
        return named
    options = {text_in(option, "id"): option for option in objects_in(session, "configOptions")}
    return text_in(options.get("model", {}), "currentValue")


def mode_in(session: Record, wanted: Sequence[str]) -> str:
    """The first of the wanted modes that a session has; "" for none, and for the one that it is in."""
    modes = object_in(session, "modes")
    offered = {text_in(mode, "id") for mode in objects_in(modes, "availableModes")}
    found = next((mode for mode in wanted if mode in offered), "")
    return "" if found == modes.get("currentModeId") else found
