"""A protobuf message as a JSON value; a number that JSON has no word for is null, as ECMAScript writes it."""

from __future__ import annotations

import math
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.json_format import MessageToDict, SerializeToJsonError

_VALUE = "google.protobuf.Value"


def plain(message: Any, **options: bool) -> Any:
    """`message` as ProtoJSON.

    An agent, or a client that speaks protobuf, may put a NaN into a task. protobuf refuses to write it, so that one
    number would keep its task, and every list with it, from being read.

    Args:
        message: any.
        options: of `MessageToDict`.
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
