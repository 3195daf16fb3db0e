"""What a call is made of: names that may stand in a path, a new key, and the request for an operation and its words."""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Callable, Mapping
from typing import Any, cast

from postroom.client.words import Words
from postroom.errors import InvalidInput, ProtocolViolation
from postroom.protocol.ids import check_address, check_message_id, check_name
from postroom.protocol.operations import OPERATIONS

POLL = 25.0
"""Seconds that one waiting call may last; a longer wait is several calls, so that a lost server is noticed."""

STREAM = ("for_ever", "away", "is_last")
"""Further arguments of a stream: `AsyncClient.events` has the first two, `is_last` tells the last event."""

Part = Mapping[str, Any]
"""A part of a message, as A2A 1.0 JSON."""


def new_key() -> str:
    """A new idempotency key: 32 hex digits."""
    return os.urandom(16).hex()


def given(**values: Any) -> dict[str, Any]:
    """Those of `values` that say something."""
    return {name: value for name, value in values.items() if value not in ("", None)}


def json_object(text: str | bytes, what: str) -> dict[str, Any]:
    """The JSON object that `what`, as an error names it, has to be; raises ProtocolViolation."""
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ProtocolViolation(f"{what} is not JSON") from error
    if not isinstance(found, dict):
        raise ProtocolViolation(f"{what} is not a JSON object")
    return found


def name_of(ref: str) -> str:
    """An address, uid or project as a path segment, without its `@` or `#`.

    Raises:
        InvalidName: it is malformed, so it must not stand in a path.
    """
    return check_address(ref.removeprefix("@").removeprefix("#"))


def _org(name: str) -> str:
    return check_name(name, "organisation")


def _blob(url: str) -> str:
    from postroom.protocol.blobs import sha256_of

    return sha256_of(url)


def _id(pattern: str, what: str, remedy: str) -> Callable[[str], str]:
    """What lets through an id, or its beginning, as a path segment; raises InvalidInput."""

    def check(ref: str) -> str:
        if re.fullmatch(pattern, ref) is None:
            raise InvalidInput(what.format(ref), remedy=remedy)
        return ref

    return check


task_ref = _id(
    "[0-9a-f]{4,32}",
    "{!r} is not the id of a task: 4 to 32 of the digits 0-9 and a-f",
    "postroom task list",
)
_CHECKS: dict[str, Callable[[str], str]] = {
    "task": task_ref,
    "approval": _id(
        "[0-9a-f]{4,64}",
        "{!r} is not the id of an approval: 4 to 64 of the digits 0-9 and a-f",
        "postroom approvals",
    ),
    "key": _id(
        "[0-9a-f]{32}|operator",
        "that is not the id of a key: 32 of the digits 0-9 and a-f, or operator",
        "postroom keys list",
    ),
    "grant": check_address,
    "message_id": check_message_id,
    "letter": check_message_id,
    "terminal": check_message_id,
    "sha256": _blob,
}


class Form:
    """One operation as a method of the client: which arguments it takes, and the request that they make."""

    def __init__(self, operation: str, words: Words) -> None:
        row = cast("dict[str, Any]", OPERATIONS[operation])
        self.words = words
        self.method, self.path = row["route"].split(" ")
        self.answer: str = row.get("answer", "")
        self.in_path = [name for name, *_ in row.get("path", ())]
        self.has_body = "body" in row or "content" in row
        self.optional: bool = row.get("optional", False)
        fields = [name for place in ("query", "body") for name, *_ in row.get(place, ())]
        fields += ["content"] if "content" in row else []
        self.required = {*self.in_path, *row.get("required", ())}
        self.required |= {"content"} & set(fields)
        self.required |= {words.called.get(name, name) for name in words.checked.split()}
        self.required -= set(words.fixed)
        self._always = {*self.required, *words.always.split()}
        named = {field: argument for argument, field in words.called.items()}
        self.fields = {named.get(field, field): field for field in fields}
        self.streams: bool = row.get("events", False)
        kinds = {name: kind for name, kind, _ in row.get("query", ())}
        self.start: int | str = 0 if kinds.get("after") == "int" else ""
        self.by_place = (*self.in_path, *words.takes.split())

    def values(self, given: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments by name; raises TypeError as a call of a function does."""
        name = self.words.name
        if len(given) > len(self.by_place):
            raise TypeError(f"{name}() takes {len(self.by_place)} arguments by place")
        found = dict(zip(self.by_place, given, strict=False))
        for each, value in named.items():
            known = each in self.fields or each in self.in_path
            if each in found or not (known or (self.streams and each in STREAM)):
                raise TypeError(f"{name}() got an unexpected argument {each!r}")
            found[each] = value
        if missing := self.required - {self.fields.get(each, each) for each in found}:
            raise TypeError(f"{name}() misses {', '.join(sorted(map(str, missing)))}")
        return {**self.words.empty, **found}

    def filled(self, values: Mapping[str, Any]) -> str:
        """The path of the request; raises InvalidName or InvalidInput."""
        of_orgs = self.path.startswith("/v1/orgs")
        path = self.path
        for name in self.in_path:
            check = _org if of_orgs else _CHECKS.get(name, name_of)
            path = path.replace(f"{{{name}}}", check(values[name]))
        return path

    def sent(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of the request: those that are required, and those that say something."""
        for name in self.words.checked.split():
            values = {**values, name: _CHECKS.get(name, name_of)(values[name])}
        fields = {self.fields[name]: value for name, value in values.items() if name in self.fields}
        fields |= self.words.fixed
        return {
            name: _plain(name, value)
            for name, value in fields.items()
            if name in self._always or _says(name, value)
        }

    def placed(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Where they go, as arguments of `AsyncTransport.call`."""
        if self.has_body:
            return {"json": fields.get("content", None if self.optional and not fields else fields)}
        query = {name: int(value) if value is True else value for name, value in fields.items()}
        return {"params": query or None}


def _says(name: str, value: Any) -> bool:
    """Whether a value is another than none: a 0 that is not a time to wait is one, and so is an empty object."""
    number = isinstance(value, (int, float)) and value is not False and name != "wait"
    return bool(value) or number or isinstance(value, Mapping)


def _plain(name: str, value: Any) -> Any:
    """A value as JSON has it."""
    if isinstance(value, Mapping):
        return {
            key: base64.b64encode(each).decode() if isinstance(each, bytes) else each
            for key, each in value.items()
        }
    if name == "parts":
        return [dict(part) for part in value]
    return list(value) if isinstance(value, (tuple, set, frozenset)) else value
