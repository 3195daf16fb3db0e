"""The required fields of a request (A2A 1.0, section 5.7), looked up once per message type.

The SDK walks the descriptors of a message at each call, which costs more than the rest of a call. This module compiles
a check per type; only a message that fails it goes to the SDK, which names the missing field.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from a2a.utils.proto_utils import validate_proto_required_fields
from google.api.field_behavior_pb2 import FieldBehavior, field_behavior
from google.protobuf.descriptor import Descriptor, FieldDescriptor

Check = Callable[[Any], bool]

_checks: dict[Any, Check] = {}


def require(message: Any) -> None:
    """Check that `message`, and each message in it, has every required field.

    Raises:
        InvalidParamsError: as the SDK's `validate_proto_required_fields` raises it.
    """
    kind = message.DESCRIPTOR
    check = _checks.get(kind)
    if check is None:
        check = _checks[kind] = _compiled(kind, {})
    if not check(message):
        validate_proto_required_fields(message)


def _compiled(kind: Descriptor, made: dict[Descriptor, Check]) -> Check:
    """The check of a type; `made` has the checks of the types around it, for a type that contains itself."""
    values: list[str] = []  # scalars, and repeated fields that must not be empty
    present: list[str] = []
    one: list[tuple[str, Check]] = []
    many: list[tuple[str, Check]] = []
    mapped: list[tuple[str, Check]] = []

    def check(message: Any) -> bool:
        for name in values:
            if not getattr(message, name):
                return False
        for name in present:
            if not message.HasField(name):
                return False
        for name, inner in one:
            if message.HasField(name) and not inner(getattr(message, name)):
                return False
        for name, inner in many:
            for item in getattr(message, name):
                if not inner(item):
                    return False
        for name, inner in mapped:
            for item in getattr(message, name).values():
                if not inner(item):
                    return False
        return True

    made[kind] = check
    for field in kind.fields:
        if _is_required(field):
            (present if field.has_presence else values).append(field.name)
        inner = field.message_type
        if inner is None or not _has_required(inner, set()):
            continue
        if not field.is_repeated:
            one.append((field.name, made.get(inner) or _compiled(inner, made)))
        elif inner.GetOptions().map_entry:
            value = inner.fields_by_name["value"].message_type
            mapped.append((field.name, made.get(value) or _compiled(value, made)))
        else:
            many.append((field.name, made.get(inner) or _compiled(inner, made)))
    return check


def _has_required(kind: Descriptor, seen: set[Descriptor]) -> bool:
    """Whether a message of this type can lack a field; most cannot, and need no check."""
    if kind in seen:
        return False
    seen.add(kind)
    return any(
        _is_required(field)
        or (field.message_type is not None and _has_required(field.message_type, seen))
        for field in kind.fields
    )


def _is_required(field: FieldDescriptor) -> bool:
    return FieldBehavior.REQUIRED in field.GetOptions().Extensions[field_behavior]
