"""Commands and requests made from the table of verbs, with its arguments and options."""

from __future__ import annotations

import argparse
import os
from typing import Any
from urllib.parse import quote, urlencode

from postroom.agentcli import content
from postroom.agentcli.local_client import call
from postroom.protocol.fields import Body, Choice, Field, Flag, Parts, Seconds, Text
from postroom.protocol.verbs import CURRENT, Action, Param, TaskAction


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
            content.add_options(parser)
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
                asked = isinstance(param.kind, Body) and not content.beside_text(options)
                value = content.text_of(None) if asked else ""
            if param.name == "re":
                value = value or _own()
            record[param.name] = value
        elif isinstance(param.kind, Parts) and content.beside_text(options):
            record[param.name] = content.parts_of(options)
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
