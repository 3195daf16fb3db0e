"""The commands `postroom-agent run`, `file` and `blob`, and files as artifacts."""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

from postroom.agentcli.commands import add_command, opened, perform, record_of, stored, target
from postroom.agentcli.local_client import download, upload
from postroom.client.files import media_type_for, whole_file
from postroom.errors import InvalidInput, ProtocolViolation
from postroom.protocol.blobs import sha256_of
from postroom.protocol.limits import INLINE_BYTES, MAX_READ, MAX_RUN
from postroom.protocol.verbs import (
    GetBlob,
    ListFolder,
    PutBlob,
    ReadFile,
    RemoveFile,
    RunCommand,
    WriteFile,
)
from postroom_a2a.text import printable

MARGIN = 30.0
"""Seconds for the sidecar's answer beyond a command's own time."""

TIMED_OUT = 124
"""Exit code for a command that was killed at the end of its time, like timeout(1)'s."""


def split(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Our own words, and those of the command after `--`, which the parser must not see."""
    own = list(argv)
    if own[:1] == ["run"] and "--" in own:
        at = own.index("--")
        return own[:at], own[at + 1 :]
    return own, []


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
        raise InvalidInput("no command was given", remedy="postroom-agent run -- COMMAND...")
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


def add_commands(commands: Any) -> None:
    """Add the commands `blob`, `run` and `file`."""
    blob = commands.add_parser("blob", help="store and fetch what is too large for a message")
    verbs = blob.add_subparsers(dest="verb", required=True, metavar="COMMAND")
    put = add_command(verbs, PutBlob)
    put.add_argument("file", help="name of the file, - for standard input")
    put.add_argument("--type", default="", metavar="T", help="media type; by the name if not given")
    put.set_defaults(run=_put)
    get = add_command(verbs, GetBlob)
    get.add_argument("url", help="blob:sha256:...")
    get.add_argument("-o", "--output", default="", metavar="FILE", help="not to standard output")
    get.set_defaults(run=_get)
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


def _put(options: argparse.Namespace) -> int:
    with opened(options.file) as file:
        sys.stdout.write(f"{stored(file, media_type_for(options.file, options.type))['url']}\n")
    return 0


def _get(options: argparse.Namespace) -> int:
    if options.output:
        with whole_file(Path(options.output)) as file:
            _fetch(options.url, file)
    else:
        _fetch(options.url, sys.stdout.buffer)
        sys.stdout.buffer.flush()
    return 0


def file_fields(name: str, media_type: str) -> dict[str, Any]:
    """The fields of an artifact that is a file: a short text as such, any other content stored as a blob."""
    with opened(name) as file:
        if not file.seekable():
            raise InvalidInput(
                f"{name!r} is not a regular file",
                remedy="store its content with: postroom-agent blob put",
            )
        if (text := _short_text(file.read(INLINE_BYTES + 1))) is not None:
            return {"text": text}
        file.seek(0)
        kind = media_type_for(name, media_type)
        url = stored(file, kind)["url"]
    return {"url": url, "mediaType": kind, "filename": Path(name).name}


def _short_text(data: bytes) -> str | None:
    if len(data) > INLINE_BYTES or b"\0" in data:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _fetch(url: str, file: BinaryIO) -> None:
    wanted, found = sha256_of(url), hashlib.sha256()
    for data in download(target(GetBlob, {"sha256": wanted})[1]):
        found.update(data)
        file.write(data)
    if found.hexdigest() != wanted:
        raise ProtocolViolation("the content has another digest than its URL")
