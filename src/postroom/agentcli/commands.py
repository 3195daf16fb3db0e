"""Commands and requests made from the table of verbs, with its arguments and options.

Beside its text a command says files, which are stored as blobs first, and data.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote, urlencode

from postroom.agentcli.local_client import call, upload
from postroom.client.files import media_type_for
from postroom.errors import InvalidInput
from postroom.protocol.fields import Body, Choice, Field, Flag, Parts, Seconds, Text
from postroom.protocol.limits import MAX_ENVELOPE_BYTES
from postroom.protocol.verbs import CURRENT, Action, Param, PutBlob, TaskAction


def add_command(commands: Any, action: type[Action], **settings: Any) -> argparse.ArgumentParser:
    """Add the command of a verb, `settings` being its parser's, and return the parser."""
    name = action.verb.command.rpartition(" ")[2]
    parser = commands.add_parser(name, help=action.verb.help, **settings)
    parser.set_defaults(action=action)
    for param in action.verb.params:
        if param.kind.argument:
            # A text may come from standard input.
            optional = isinstance(param.kind, Text) or not param.required
            default = None if isinstance(param.kind, Text) else ""
            parser.add_argument(
                param.attribute,
                metavar=param.kind.argument,
                nargs="?" if optional else None,
                default=default,
                help=param.kind.help,
            )
        elif param.kind.option:
            parser.add_argument(
                param.kind.option, dest=param.attribute, help=param.kind.help, **_option(param)
            )
        elif isinstance(param.kind, Parts):
            add_options(parser)
    return parser


def _option(param: Param) -> dict[str, Any]:
    match param.kind:
        case Flag():
            return {"action": "store_false" if param.default else "store_true"}
        case Choice(among=among):
            return {"choices": among, "default": ""}
        case Seconds():
            return {"type": float, "default": param.default, "metavar": "SECONDS"}
        case Field(metavar=metavar):
            return {"default": "", "metavar": metavar or None}
    raise AssertionError(param)


def record_of(options: argparse.Namespace) -> dict[str, Any]:
    """The values of the options by the names of their fields."""
    record = {}
    for param in options.action.verb.params:
        if param.kind.argument or param.kind.option:
            value = getattr(options, param.attribute)
            if value is None:
                asked = isinstance(param.kind, Body) and not beside_text(options)
                value = text_of(None) if asked else ""
            if param.name == "re":
                value = value or _own()
            record[param.name] = value
        elif isinstance(param.kind, Parts) and beside_text(options):
            record[param.name] = parts_of(options)
    return record


def _own() -> str:
    """The task or the message that this run of the program is about, "" for a program that handles all."""
    return os.environ.get("POSTROOM_TASK") or os.environ.get("POSTROOM_MESSAGE") or ""


def perform(action: type[Action], record: dict[str, Any], **settings: Any) -> Any:
    """The sidecar's answer to a request. Raises as `local_client.call`."""
    method, path = target(action, record)
    if method == "POST":
        return call(method, path, record, **settings)
    return call(method, path, **settings)


def target(action: type[Action], record: dict[str, Any]) -> tuple[str, str]:
    """Method and path of a request; removes from the record the fields in the path or its query."""
    method, _, path = action.verb.route.partition(" ")
    for part in action.verb.pattern:
        if part.startswith("{"):
            value = str(record.pop(part[1:-1])) or (
                CURRENT if issubclass(action, TaskAction) else ""
            )
            path = path.replace(part, quote(value, safe=""))
    if method == "POST" or not record:
        return method, path
    query = {
        name: int(value) if isinstance(value, bool) else value for name, value in record.items()
    }
    record.clear()
    return method, f"{path}?{urlencode(query, quote_via=quote)}"


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
    return [*(_blob_of(name, options.type) for name in options.file), *data]


def _blob_of(name: str, media_type: str) -> dict[str, Any]:
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
