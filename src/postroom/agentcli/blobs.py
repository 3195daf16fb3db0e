"""The commands `postroom-agent blob`, and files as artifacts."""

from __future__ import annotations

import argparse
import hashlib
import sys
from pathlib import Path
from typing import Any, BinaryIO

from postroom.agentcli.commands import add_command, target
from postroom.agentcli.content import opened, stored
from postroom.agentcli.local_client import download
from postroom.client.files import media_type_for, whole_file
from postroom.errors import InvalidInput, ProtocolViolation
from postroom.protocol.blobs import sha256_of
from postroom.protocol.limits import INLINE_BYTES
from postroom.protocol.verbs import GetBlob, PutBlob


def add_commands(commands: Any) -> None:
    """Add the command `blob`."""
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
