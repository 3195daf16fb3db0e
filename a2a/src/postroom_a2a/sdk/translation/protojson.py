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
        return kind(**_reader(kind.DESCRIPTOR)(value))
    except (_Uncommon, TypeError, *UNREADABLE):
        return ParseDict(value, kind(), ignore_unknown_fields=True, max_recursion_depth=depth)


def write(message: Message) -> bytes:
    """`message` as JSON text, the same as `dumps(plain(message))`."""
    try:
        return _writer(message.DESCRIPTOR)(message).encode()
    except _Uncommon:
        return dumps(plain(message))


# ── reading ──────────────────────────────────────────────────────────────────────────────────────────

_readers: dict[str, _Read] = {}


def _reader(descriptor: Any) -> _Read:
    """Makes the arguments of a message's constructor from its JSON."""
    found = _readers.get(descriptor.full_name)
    if found is None:
        fields: dict[str, tuple[str, _Read | None, str]] = {}
        _readers[descriptor.full_name] = found = _members(fields)
        for field in descriptor.fields:
            oneof = field.containing_oneof.name if field.containing_oneof is not None else ""
            fields[field.json_name] = fields[field.name] = field.name, _field_reader(field), oneof
    return found


def _members(fields: dict[str, tuple[str, _Read | None, str]]) -> _Read:
    def members(value: Any) -> dict[str, Any]:
        if type(value) is not dict:
            raise _Uncommon
        found: dict[str, Any] = {}
        oneofs: list[str] = []
        for name, each in value.items():
            field = fields.get(name)
            if field is None:
                if name[:1] == "[":  # an extension, which is no unknown member
                    raise _Uncommon
                continue
            own, convert, oneof = field
            if convert is None or each is None or own in found or oneof in oneofs:
                raise _Uncommon
            if oneof:
                oneofs.append(oneof)
            found[own] = convert(each)
        return found

    return members


def _field_reader(field: FieldDescriptor) -> _Read | None:
    """Reads the JSON of a field; None for one that is uncommon."""
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        texts = all(each.type == FieldDescriptor.TYPE_STRING for each in kind.fields)
        return _text_map if texts else None
    convert = _value_reader(field)
    return _several(convert) if convert is not None and field.is_repeated else convert


def _several(convert: _Read) -> _Read:
    def several(value: Any) -> list[Any]:
        if type(value) is not list:
            raise _Uncommon
        return [convert(each) for each in value]

    return several


def _value_reader(field: FieldDescriptor) -> _Read | None:
    match field.type:
        case FieldDescriptor.TYPE_STRING:
            return _text
        case FieldDescriptor.TYPE_BOOL:
            return _flag
        case FieldDescriptor.TYPE_INT32:
            return _count
        case FieldDescriptor.TYPE_BYTES:
            return _bytes
        case FieldDescriptor.TYPE_ENUM if not field.enum_type.full_name.startswith(_FOREIGN):
            return _named({each.name: each.number for each in field.enum_type.values})
        case FieldDescriptor.TYPE_MESSAGE if field.message_type.full_name in _FREE:
            return _free(field.message_type._concrete_class)  # noqa: SLF001 (it has no other door)
        case FieldDescriptor.TYPE_MESSAGE if field.message_type.full_name == _TIMESTAMP:
            return _time
        case FieldDescriptor.TYPE_MESSAGE if not field.message_type.full_name.startswith(_FOREIGN):
            return _reader(field.message_type)
    return None


def _text(value: Any) -> str:
    if type(value) is not str:
        raise _Uncommon
    return value  # one with half of a character is refused by the constructor


def _flag(value: Any) -> bool:
    if type(value) is not bool:
        raise _Uncommon
    return value


def _count(value: Any) -> int:
    if type(value) is not int:
        raise _Uncommon
    return value


def _bytes(value: Any) -> bytes:
    encoded = _text(value).encode()
    return base64.urlsafe_b64decode(encoded + b"=" * (4 - len(encoded) % 4))


def _named(numbers: dict[str, int]) -> _Read:
    def named(value: Any) -> int:
        number = numbers.get(_text(value))
        if number is None:
            raise _Uncommon
        return number

    return named


def _free(kind: type[Message]) -> _Read:
    def free(value: Any) -> Message:
        return ParseDict(value, kind(), max_recursion_depth=_FREE_DEPTH)

    return free


def _time(value: Any) -> Message:
    found = _Timestamp()
    found.FromJsonString(_text(value))
    return found


def _text_map(value: Any) -> dict[str, str]:
    if type(value) is not dict:
        raise _Uncommon
    return {name: _text(each) for name, each in value.items()}


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
