"""What a command says beside its text: files, which are stored as blobs first, and data."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from postroom.agentcli.local_client import upload
from postroom.client.files import media_type_for
from postroom.errors import InvalidInput
from postroom.protocol.limits import MAX_ENVELOPE_BYTES
from postroom.protocol.verbs import PutBlob


def add_options(command: argparse.ArgumentParser) -> None:
    """Add `--file`, `--type` and `--data`."""
    for option, metavar, text in (
        ("--file", "PATH", "a file, stored as a blob; repeatable"),
        ("--data", "JSON", "a JSON value, or @PATH for a file with one; repeatable"),
    ):
        command.add_argument(option, action="append", default=[], metavar=metavar, help=text)
    command.add_argument(
        "--type",
        default="",
        metavar="T",
        help="media type of the files; by their names if left out",
    )


def beside_text(options: argparse.Namespace) -> bool:
    """Whether anything but a text is said."""
    return bool(getattr(options, "file", ()) or getattr(options, "data", ()))


def parts_of(options: argparse.Namespace) -> list[dict[str, Any]]:
    """The parts in the order of the options, files first; each file is stored.

    Raises:
        InvalidInput: a file cannot be read, or a value is not JSON.
    """
    data = [{"data": _value(given)} for given in options.data]  # before anything is stored
    return [*(_file(name, options.type) for name in options.file), *data]


def _file(name: str, media_type: str) -> dict[str, Any]:
    kind = media_type_for(name, media_type)
    with opened(name) as file:
        part = {"url": stored(file, kind)["url"], "mediaType": kind}
    return part if name == "-" else {**part, "filename": Path(name).name}


def _value(given: str) -> Any:
    text = given
    if given.startswith("@"):
        with opened(given[1:]) as file:
            text = file.read(MAX_ENVELOPE_BYTES + 1).decode("utf-8", errors="replace")
    try:
        return json.loads(text)
    except ValueError as error:
        raise InvalidInput(f"--data is not valid JSON: {error}") from error


def text_of(given: str | None) -> str:
    """The text that was given, or standard input."""
    if given is not None:
        return given
    return sys.stdin.buffer.read().decode("utf-8", errors="replace").removesuffix("\n")


@contextmanager
def opened(name: str) -> Generator[BinaryIO]:
    """A file for reading, `-` for standard input; raises InvalidInput."""
    if name == "-":
        yield sys.stdin.buffer
        return
    try:
        file = Path(name).open("rb")  # noqa: SIM115 (closed below)
    except OSError as error:
        raise InvalidInput(f"{name!r} cannot be read: {error.strerror}") from error
    with file:
        yield file


def stored(file: BinaryIO, media_type: str) -> dict[str, Any]:
    """Store a content as a blob; returns the sidecar's answer."""
    return upload(PutBlob.verb.route.partition(" ")[2], file, media_type)
