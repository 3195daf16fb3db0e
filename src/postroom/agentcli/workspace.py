"""What `postroom-agent` does about commands and files of the workspace."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote, urlencode

from postroom.agentcli.local_client import call, download, upload
from postroom.errors import InvalidInput
from postroom_a2a.text import printable

PIECE = 1024 * 1024
"""Bytes of a file that are asked for at a time."""

MARGIN = 30.0
"""Seconds that the sidecar has beyond a command's own time."""

MAX_SECONDS = 3600.0
"""Seconds that the sidecar gives a command at most."""

TIMED_OUT = 124
"""Exit code for a command that was killed at the end of its time, as of timeout(1)."""


def split(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Our own words, and those of the command after `--`, which are no business of the parser's."""
    own = list(argv)
    if own[:1] == ["run"] and "--" in own:
        at = own.index("--")
        return own[:at], own[at + 1 :]
    return own, []


def add_commands(commands: Any) -> None:
    """Add the commands `run` and `file` to the parser's."""
    run = commands.add_parser(
        "run",
        help="run a program and exit as it does",
        usage="postroom-agent run [-h] [--cwd DIR] [--timeout SECONDS] [--env NAME=TEXT] -- COMMAND...",
    )
    run.add_argument("--cwd", default="", metavar="DIR", help="folder in the workspace")
    run.add_argument("--timeout", type=float, default=60.0, metavar="SECONDS", help="then kill it")
    run.add_argument(
        "--env", action="append", default=[], metavar="NAME=TEXT", help="set this, too"
    )
    file = commands.add_parser("file", help="files of the workspace")
    verbs = file.add_subparsers(dest="verb", required=True, metavar="COMMAND")
    reading = verbs.add_parser("read", help="print a file")
    writing = verbs.add_parser("write", help="make or replace a file from standard input")
    writing.add_argument("--mode", default="644", metavar="OCTAL", help="permission bits")
    listing = verbs.add_parser("list", help="what is in a folder: mode, size, name")
    listing.add_argument("--json", action="store_true", help="JSON, one entry a line")
    removing = verbs.add_parser("remove", help="remove a file, or a folder with all that is in it")
    for verb in (reading, writing, removing):
        verb.add_argument("path", help="relative to the workspace")
    listing.add_argument("path", nargs="?", default="", help="relative to the workspace")


def run(options: argparse.Namespace) -> int:
    """Carry out one command; returns the exit code.

    Raises:
        PostroomError: it was refused.
    """
    if options.command == "run":
        return _run(options)
    query = {"path": options.path}
    match options.verb:
        case "read":
            _read(options.path)
        case "write":
            query["mode"] = options.mode
            upload(_target("files", **query), sys.stdin.buffer, "application/octet-stream")
        case "remove":
            call("DELETE", _target("files", **query))
        case "list":
            for entry in call("GET", _target("folders", **query))["entries"]:
                sys.stdout.write(f"{json.dumps(entry) if options.json else _line(entry)}\n")
    return 0


def _run(options: argparse.Namespace) -> int:
    if not options.program:
        raise InvalidInput("no command is named", remedy="postroom-agent run -- COMMAND...")
    pairs = [text.partition("=") for text in options.env]
    if not all(between for _, between, _ in pairs):
        raise InvalidInput("--env takes NAME=TEXT")
    body = {
        "command": options.program,
        "cwd": options.cwd,
        "timeout": options.timeout,
        "env": {name: text for name, _, text in pairs},
    }
    done = call(
        "POST", "/v1/run", body, timeout=min(max(0.0, options.timeout), MAX_SECONDS) + MARGIN
    )
    sys.stdout.write(done["stdout"])
    sys.stdout.flush()
    sys.stderr.write(done["stderr"])
    for output in ("stdout", "stderr"):
        if done[f"{output}_truncated"]:
            sys.stderr.write(f"postroom-agent: there was more on {output}\n")
    if done["timed_out"]:
        sys.stderr.write(f"postroom-agent: killed after {min(options.timeout, MAX_SECONDS):g} s\n")
        return TIMED_OUT
    return int(done["exit_code"])


def _read(path: str) -> None:
    offset = 0
    while True:
        target = _target("files", path=path, offset=str(offset), length=str(PIECE))
        got = 0
        for data in download(target):
            sys.stdout.buffer.write(data)
            got += len(data)
        offset += got
        if got < PIECE:
            sys.stdout.buffer.flush()
            return


def _target(place: str, **query: str) -> str:
    return f"/v1/{place}?{urlencode(query, quote_via=quote)}"


def _line(entry: dict[str, Any]) -> str:
    end = "/" if entry["kind"] == "folder" else ""
    return f"{entry['mode']:>4} {entry['size']:>10} {printable(entry['name'])}{end}"
