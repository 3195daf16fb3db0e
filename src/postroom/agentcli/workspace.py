"""What `postroom-agent` does about commands and files of the workspace."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

from postroom.agentcli.commands import add_command, perform, record_of, target
from postroom.agentcli.local_client import download, upload
from postroom.errors import InvalidInput
from postroom.protocol.limits import MAX_READ, MAX_RUN
from postroom.protocol.verbs import ListFolder, ReadFile, RemoveFile, RunCommand, WriteFile
from postroom_a2a.text import printable

MARGIN = 30.0
"""Seconds that the sidecar has beyond a command's own time."""

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
    run = add_command(
        commands,
        RunCommand,
        usage="postroom-agent run [-h] [--cwd DIR] [--timeout SECONDS] [--env NAME=TEXT] -- COMMAND...",
    )
    run.add_argument(
        "--env", action="append", default=[], metavar="NAME=TEXT", help="set this, too"
    )
    run.set_defaults(run=_run)
    file = commands.add_parser("file", help="files of the workspace")
    verbs = file.add_subparsers(dest="verb", required=True, metavar="COMMAND")
    add_command(verbs, ReadFile).set_defaults(run=_read)
    add_command(verbs, WriteFile).set_defaults(run=_write)
    add_command(verbs, RemoveFile).set_defaults(run=_remove)
    listing = add_command(verbs, ListFolder)
    listing.add_argument("--json", action="store_true", help="JSON, one entry a line")
    listing.set_defaults(run=_list)


def _write(options: argparse.Namespace) -> int:
    _, path = target(WriteFile, record_of(options))
    upload(path, sys.stdin.buffer, "application/octet-stream")
    return 0


def _remove(options: argparse.Namespace) -> int:
    perform(RemoveFile, record_of(options))
    return 0


def _list(options: argparse.Namespace) -> int:
    for entry in perform(ListFolder, record_of(options))["entries"]:
        sys.stdout.write(f"{json.dumps(entry) if options.json else _line(entry)}\n")
    return 0


def _run(options: argparse.Namespace) -> int:
    if not options.program:
        raise InvalidInput("no command is named", remedy="postroom-agent run -- COMMAND...")
    pairs = [text.partition("=") for text in options.env]
    if not all(between for _, between, _ in pairs):
        raise InvalidInput("--env takes NAME=TEXT")
    body = record_of(options)
    body |= {"command": options.program, "env": {name: text for name, _, text in pairs}}
    limit = min(max(0.0, options.timeout), MAX_RUN) + MARGIN
    done = perform(RunCommand, body, timeout=limit)
    sys.stdout.write(done["stdout"])
    sys.stdout.flush()
    sys.stderr.write(done["stderr"])
    for output in ("stdout", "stderr"):
        if done[f"{output}_truncated"]:
            sys.stderr.write(f"postroom-agent: there was more on {output}\n")
    if done["timed_out"]:
        sys.stderr.write(f"postroom-agent: killed after {min(options.timeout, MAX_RUN):g} s\n")
        return TIMED_OUT
    return int(done["exit_code"])


def _read(options: argparse.Namespace) -> int:
    offset = 0
    while True:
        piece = {"path": options.path, "offset": offset, "length": MAX_READ}
        got = 0
        for data in download(target(ReadFile, piece)[1]):
            sys.stdout.buffer.write(data)
            got += len(data)
        offset += got
        if got < MAX_READ:
            sys.stdout.buffer.flush()
            return 0


def _line(entry: dict[str, Any]) -> str:
    end = "/" if entry["kind"] == "folder" else ""
    return f"{entry['mode']:>4} {entry['size']:>10} {printable(entry['name'])}{end}"
