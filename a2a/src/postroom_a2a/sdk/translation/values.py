"""JSON values: reading the members of objects that a peer wrote, and writing protobuf as ProtoJSON."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.json_format import (
    MessageToDict,
    ParseDict,
    ParseError,
    SerializeToJsonError,
)

Record = dict[str, Any]
_T = TypeVar("_T")

UNREADABLE = (ParseError, ValueError, OverflowError, RecursionError, SystemError)
"""The errors of protobuf's reader for JSON that it cannot take."""

DEPTH = 64
"""How deep protobuf's reader may go into JSON, which is half as deep itself. What is deeper could be kept, but not read
again as protobuf, whose own limit (100) counts three times for an object in an object."""

_INT32 = 2**31
_VALUE = "google.protobuf.Value"

# ── reading: a member that is absent or null is empty, one of a wrong type is named ────────────────


def reason(error: Exception) -> str:
    """The fault in the text of one of the `UNREADABLE`."""
    if isinstance(error, SystemError):  # so protobuf takes a name that is no Unicode
        return "the name of a member holds half of a character"
    return str(error)


class MalformedObject(Exception):
    """A member breaks a rule.

    Args:
        member: its name; the readers of what is around it put their own before it.
        rule: what it has to be.
    """

    def __init__(self, member: str, rule: str) -> None:
        super().__init__(member, rule)
        self.member = member
        self.rule = rule

    def inside(self, holder: str) -> MalformedObject:
        """The same error for a member of `holder`."""
        mark = "" if self.member.startswith("[") or not self.member else "."
        self.member = f"{holder}{mark}{self.member}"
        return self

    def __str__(self) -> str:
        return f"{self.member} {self.rule}"


def record(value: Any, name: str = "") -> Record:
    """`value`, which has to be an object."""
    if not isinstance(value, dict):
        raise MalformedObject(name, "has to be an object")
    return value


def text(holder: Record, name: str) -> str:
    """A text member; "" if it is absent."""
    value = holder.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise MalformedObject(name, "has to be a text")
    _check(value, name)
    return value


def _check(value: str, name: str) -> None:
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise MalformedObject(name, "holds half of a character") from error


def needed(holder: Record, name: str) -> str:
    """A text member that has to be there."""
    value = text(holder, name)
    if not value:
        raise MalformedObject(name, "is required")
    return value


def flag(holder: Record, name: str) -> bool | None:
    """A member that is true or false; None if it is absent."""
    value = holder.get(name)
    if value is not None and not isinstance(value, bool):
        raise MalformedObject(name, "has to be true or false")
    return value


def count(holder: Record, name: str) -> int | None:
    """A whole number of 32 bits; None if it is absent."""
    value = holder.get(name)
    if value is None:
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not -_INT32 <= value < _INT32:
        raise MalformedObject(name, "has to be a whole number")
    return value


def listed(holder: Record, name: str, read: Callable[[Any], _T]) -> list[_T]:
    """Each value of a list, read by `read`; empty if the list is absent."""
    values = holder.get(name)
    if values is None:
        return []
    if not isinstance(values, list):
        raise MalformedObject(name, "has to be a list")
    found = []
    for value in values:
        try:
            found.append(read(value))
        except MalformedObject as error:
            raise error.inside(f"{name}[{len(found)}]") from None
    return found


def texts(holder: Record, name: str) -> list[str]:
    """A list of texts."""
    return listed(holder, name, _text)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise MalformedObject("", "has to be a text")
    _check(value, "")
    return value


def within(holder: Record, name: str, read: Callable[[Record], _T]) -> _T | None:
    """A member that is an object, read by `read`; None if it is absent."""
    value = holder.get(name)
    if value is None:
        return None
    try:
        return read(record(value))
    except MalformedObject as error:
        raise error.inside(name) from None


def mapping(holder: Record, name: str, read: Callable[[Any], _T]) -> dict[str, _T]:
    """Each value of a member with free names, read by `read`."""
    found = {}
    for key, value in record(holder.get(name) or {}, name).items():
        _check(key, name)
        try:
            found[key] = read(value)
        except MalformedObject as error:
            raise error.inside(f"{name}.{key}") from None
    return found


def struct(holder: Record, name: str, into: Any, *, keep_empty: bool = False) -> None:
    """Put a free object into `into`; nothing if it is absent, or empty unless `keep_empty`."""
    value = holder.get(name)
    if value is None:
        return
    record(value, name)
    if value or keep_empty:
        free(value, name, into)


def free(value: Any, name: str, into: Any) -> None:
    """Put any JSON into `into`, a Struct or a Value."""
    try:
        ParseDict(value, into, max_recursion_depth=DEPTH - 8)
    except UNREADABLE as error:
        raise MalformedObject(name, f"cannot be taken: {reason(error)}") from error


# ── writing ──────────────────────────────────────────────────────────────────────────────────────────


def plain(message: Any, **options: bool) -> Any:
    """`message` as ProtoJSON; `options` are those of `MessageToDict`. A number that JSON has no word for is null.

    An agent, or a client that speaks protobuf, may put a NaN into a task. protobuf refuses to write it, so one
    number would keep its task, and every list with the task, from being read.
    """
    try:
        return MessageToDict(message, **options)
    except (SerializeToJsonError, ValueError):
        finite = type(message)()
        finite.CopyFrom(message)
        _mend(finite)
        return MessageToDict(finite, **options)


def _mend(message: Any) -> None:
    if message.DESCRIPTOR.full_name == _VALUE and message.HasField("number_value"):
        if not math.isfinite(message.number_value):
            message.null_value = 0  # the only one that there is
        return
    for field, value in message.ListFields():
        if field.type != FieldDescriptor.TYPE_MESSAGE:
            continue
        if not field.is_repeated:
            _mend(value)
        elif not field.message_type.GetOptions().map_entry:
            for each in value:
                _mend(each)
        elif field.message_type.fields_by_name["value"].type == FieldDescriptor.TYPE_MESSAGE:
            for name in value:
                _mend(value[name])
