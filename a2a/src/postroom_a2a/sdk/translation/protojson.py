"""ProtoJSON of what calls consist of, by tables made once for each type of message.

`google.protobuf.json_format` asks the descriptors anew at every field, which costs ten times as much. It still reads
and writes whatever is uncommon here (a member of a type that has to be converted, a NaN, a fault), so that its rules,
and its texts for faults, are the only ones.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any, TypeVar

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.json_format import ParseDict
from google.protobuf.message import Message

from a2a import types
from postroom_a2a.ecma_json import dumps, quoted
from postroom_a2a.sdk.translation.values import DEPTH, UNREADABLE, plain

_M = TypeVar("_M", bound=Message)

_Read = Callable[[Any], Any]
_Write = Callable[[Any], str]

_FREE = frozenset({"google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue"})
_TIMESTAMP = "google.protobuf.Timestamp"
_FOREIGN = "google.protobuf."

_Timestamp = type(types.TaskStatus().timestamp)

_FREE_DEPTH = DEPTH - 16
"""How deep free JSON may be that is read here; it may lie this much below what `DEPTH` counts from."""


class _Uncommon(Exception):
    """Something that `json_format` has to read or write."""


def read(value: Any, kind: type[_M], *, depth: int) -> _M:
    """`value` as a message of that kind; unknown members are ignored.

    Args:
        depth: how deep `json_format` may go into it.

    Raises:
        As `ParseDict`: one of `UNREADABLE`.
    """
    try:
        if type(value) is dict:
            return kind(**_reader(kind.DESCRIPTOR)(value))
    except (_Uncommon, TypeError, *UNREADABLE):
        pass
    return ParseDict(value, kind(), ignore_unknown_fields=True, max_recursion_depth=depth)


def write(message: Message) -> bytes:
    """`message` as JSON text, the same as `dumps(plain(message))`."""
    try:
        return _writer(message.DESCRIPTOR)(message).encode()
    except _Uncommon:
        return dumps(plain(message))


# ── reading ──────────────────────────────────────────────────────────────────────────────────────────


class _Other:
    """The type of no JSON value: of what a field takes that is uncommon."""


_readers: dict[str, _Read] = {}


def _reader(descriptor: Any) -> _Read:
    """Makes the arguments of a message's constructor from its JSON object."""
    found = _readers.get(descriptor.full_name)
    if found is None:
        fields: dict[str, tuple[str, type | None, _Read | None, str]] = {}
        _readers[descriptor.full_name] = found = _members(fields)
        for field in descriptor.fields:
            kind, convert = _several(field) if field.is_repeated else _single(field)
            oneof = field.containing_oneof.name if field.containing_oneof is not None else ""
            fields[field.json_name] = fields[field.name] = field.name, kind, convert, oneof
    return found


def _members(fields: dict[str, tuple[str, type | None, _Read | None, str]]) -> _Read:
    find = fields.get

    def members(value: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        oneofs: list[str] = []
        for name, each in value.items():
            field = find(name)
            if field is None:
                # An extension is no unknown member, and half of a character is no name.
                if name[:1] == "[" or not name.isascii():
                    raise _Uncommon
                continue
            own, kind, convert, oneof = field
            if (type(each) is not kind and kind is not None) or own in found:
                raise _Uncommon
            if oneof:
                if oneof in oneofs:
                    raise _Uncommon
                oneofs.append(oneof)
            found[own] = each if convert is None else convert(each)
        return found

    return members


def _several(field: FieldDescriptor) -> tuple[type | None, _Read | None]:
    """As `_single`, for a repeated field or a map."""
    message = field.message_type
    if message is not None and message.GetOptions().map_entry:
        texts = all(each.type == FieldDescriptor.TYPE_STRING for each in message.fields)
        return (dict, _texts_by_name) if texts else (_Other, None)
    kind, convert = _single(field)

    def several(values: list[Any]) -> list[Any]:
        for each in values:
            if type(each) is not kind:
                raise _Uncommon
        return values if convert is None else [convert(each) for each in values]

    return list, several


def _single(field: FieldDescriptor) -> tuple[type | None, _Read | None]:
    """The type of the JSON of a field that holds one value, and what converts it."""
    match field.type:
        case FieldDescriptor.TYPE_STRING:
            return str, None  # the constructor refuses one that holds half of a character
        case FieldDescriptor.TYPE_BOOL:
            return bool, None
        case FieldDescriptor.TYPE_INT32:
            return int, None
        case FieldDescriptor.TYPE_BYTES:
            return str, _bytes
        case FieldDescriptor.TYPE_ENUM if not field.enum_type.full_name.startswith(_FOREIGN):
            return str, _named({each.name: each.number for each in field.enum_type.values})
        case FieldDescriptor.TYPE_MESSAGE if field.message_type.full_name in _FREE:
            return None, _free(field.message_type)
        case FieldDescriptor.TYPE_MESSAGE if field.message_type.full_name == _TIMESTAMP:
            return str, _time
        case FieldDescriptor.TYPE_MESSAGE if not field.message_type.full_name.startswith(_FOREIGN):
            return dict, _reader(field.message_type)
    return _Other, None


def _bytes(value: str) -> bytes:
    encoded = value.encode()
    return base64.urlsafe_b64decode(encoded + b"=" * (4 - len(encoded) % 4))


def _named(numbers: dict[str, int]) -> _Read:
    def named(value: str) -> int:
        number = numbers.get(value)
        if number is None:
            raise _Uncommon
        return number

    return named


def _free(descriptor: Any) -> _Read:
    make = descriptor._concrete_class  # noqa: SLF001 (it has no other door)

    def free(value: Any) -> Message:
        if value is None:  # for a Value it is a value
            raise _Uncommon
        return ParseDict(value, make(), max_recursion_depth=_FREE_DEPTH)

    return free


def _time(value: str) -> Message:
    found = _Timestamp()
    found.FromJsonString(value)
    return found


def _texts_by_name(value: dict[str, Any]) -> dict[str, str]:
    for each in value.values():
        if type(each) is not str:
            raise _Uncommon
    return value


# ── writing ──────────────────────────────────────────────────────────────────────────────────────────

_writers: dict[str, _Write] = {}


def _writer(descriptor: Any) -> _Write:
    """Writes a message as a JSON object."""
    found = _writers.get(descriptor.full_name)
    if found is None:
        fields: dict[int, tuple[str, _Write]] = {}
        _writers[descriptor.full_name] = found = _object(fields)
        for field in descriptor.fields:
            fields[field.number] = f"{quoted(field.json_name)}:", _field_writer(field)
    return found


def _object(fields: dict[int, tuple[str, _Write]]) -> _Write:
    def write_object(message: Message) -> str:
        members = []
        for field, value in message.ListFields():
            name, write_value = fields[field.number]
            members.append(name + write_value(value))
        return f"{{{','.join(members)}}}"

    return write_object


def _field_writer(field: FieldDescriptor) -> _Write:
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        return _refused
    write_value = _value_writer(field)
    if not field.is_repeated:
        return write_value
    return lambda values: f"[{','.join(map(write_value, values))}]"


def _value_writer(field: FieldDescriptor) -> _Write:
    match field.type:
        case FieldDescriptor.TYPE_STRING:
            return quoted
        case FieldDescriptor.TYPE_BOOL:
            return lambda value: "true" if value else "false"
        case FieldDescriptor.TYPE_INT32:
            return str
        case FieldDescriptor.TYPE_BYTES:
            return lambda value: f'"{base64.b64encode(value).decode()}"'
        case FieldDescriptor.TYPE_ENUM if not field.enum_type.full_name.startswith(_FOREIGN):
            names = {each.number: quoted(each.name) for each in field.enum_type.values}
            return lambda value: names.get(value) or str(value)
        case FieldDescriptor.TYPE_MESSAGE if field.message_type.full_name in _FREE:
            return lambda value: dumps(plain(value)).decode()
        case FieldDescriptor.TYPE_MESSAGE if field.message_type.full_name == _TIMESTAMP:
            return _write_time
        case FieldDescriptor.TYPE_MESSAGE if not field.message_type.full_name.startswith(_FOREIGN):
            return _writer(field.message_type)
    return _refused


def _write_time(value: Any) -> str:
    try:
        return f'"{value.ToJsonString()}"'
    except ValueError as error:  # beyond the year 9999
        raise _Uncommon from error


def _refused(_: Any) -> str:
    raise _Uncommon
