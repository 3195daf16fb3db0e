"""The command `postroom-agent call`: one A2A call to another agent; the answer or stream as lines of JSON."""

from __future__ import annotations

import argparse
import json
import secrets
import sys
from typing import Any
from urllib.parse import quote

from postroom.agentcli.local_client import lines
from postroom.errors import (
    Conflict,
    InvalidInput,
    NoResponders,
    NotFound,
    PeerError,
    PostroomError,
    Refused,
    from_problem,
)
from postroom_a2a.text import one_line

KINDS: dict[int, type[PostroomError]] = {
    -32001: NotFound,
    -32002: Conflict,
    -32004: Conflict,
    -32005: InvalidInput,
    -32009: InvalidInput,
    -32050: Refused,
    -32600: InvalidInput,
    -32601: InvalidInput,
    -32602: InvalidInput,
}
"""Errors of A2A as ours, for the exit code; any other is a PeerError."""


def add_commands(commands: Any) -> None:
    """Add the command `call`."""
    call = commands.add_parser(
        "call", help="call another agent by A2A 1.0; prints each result as a line of JSON"
    )
    call.add_argument("nick", metavar="NICK", help="of the agent, or its uid")
    call.add_argument("method", metavar="METHOD", help="such as SendMessage or GetTask")
    call.add_argument(
        "params", nargs="?", default="{}", metavar="PARAMS-JSON", help="{} if not given"
    )
    call.add_argument("--stream", action="store_true", help="SendMessage as SendStreamingMessage")
    call.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Carry out one call; returns the exit code."""
    try:
        params = json.loads(options.params)
    except ValueError as error:
        raise InvalidInput("PARAMS-JSON is not valid JSON") from error
    method = options.method
    if options.stream and method == "SendMessage":
        method = "SendStreamingMessage"
    body = {"jsonrpc": "2.0", "id": secrets.token_hex(8), "method": method, "params": params}
    nick = options.nick.removeprefix("@")
    path = f"/a2a/agents/{quote(nick, safe='')}"
    for line in lines(path, body, {"A2A-Version": "1.0"}):
        response = json.loads(line)
        if "error" in response:
            raise _error(response["error"], nick)
        sys.stdout.write(json.dumps(response.get("result"), ensure_ascii=False) + "\n")
        sys.stdout.flush()
    return 0


def _error(document: dict[str, Any], nick: str) -> PostroomError:
    """The error of a JSON-RPC answer as ours."""
    message = one_line(str(document.get("message", "")), 500)
    for info in document.get("data") or ():
        code = info.get("metadata", {}).get("postroom", "")
        if code == NoResponders.code:
            return NoResponders(f"nobody serves {one_line(nick, 80)} at the moment")
        if code:
            return from_problem({"code": code, "detail": message}, 0)
    return KINDS.get(document.get("code", 0), PeerError)(message)
