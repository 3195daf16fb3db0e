"""The compiled check of required fields says what the SDK's walk says, for any message."""

from __future__ import annotations

from typing import Any

import pytest
from a2a.utils.errors import InvalidParamsError
from a2a.utils.proto_utils import validate_proto_required_fields
from google.protobuf.message import Message
from hypothesis import given, settings
from hypothesis import strategies as st

from a2a import types
from postroom_a2a.sdk.handling.configs import require

KINDS = [
    types.SendMessageRequest,
    types.GetTaskRequest,
    types.ListTasksRequest,
    types.CancelTaskRequest,
    types.SubscribeToTaskRequest,
    types.TaskPushNotificationConfig,
    types.GetTaskPushNotificationConfigRequest,
    types.ListTaskPushNotificationConfigsRequest,
    types.DeleteTaskPushNotificationConfigRequest,
    types.GetExtendedAgentCardRequest,
    types.AgentCard,
    types.Task,
    types.StreamResponse,
]


@st.composite
def messages(draw: st.DrawFn, kind: Any, depth: int = 4) -> Message:
    """A message of which each field may be missing, empty or there."""
    message = kind()
    for field in kind.DESCRIPTOR.fields:
        if not draw(st.booleans()):
            continue
        inner = field.message_type
        if inner is None:
            value = draw(st.sampled_from([0, 1])) if field.type != field.TYPE_BOOL else True
            if field.type == field.TYPE_STRING:
                value = draw(st.sampled_from(["", "x"]))
            elif field.type == field.TYPE_BYTES:
                value = draw(st.sampled_from([b"", b"x"]))
            if field.is_repeated:
                getattr(message, field.name).append(value)
            else:
                setattr(message, field.name, value)
        elif inner.GetOptions().map_entry:
            within = inner.fields_by_name["value"].message_type
            entries = getattr(message, field.name)
            if within is None:
                entries["k"] = "v"
            elif depth:
                entries["k"].CopyFrom(draw(messages(within._concrete_class, depth - 1)))
        elif depth:
            found = draw(messages(inner._concrete_class, depth - 1))
            if field.is_repeated:
                getattr(message, field.name).append(found)
            else:
                getattr(message, field.name).CopyFrom(found)
    return message


def outcome(check: Any, message: Message) -> Any:
    try:
        check(message)
    except InvalidParamsError as error:
        return error.message, error.data
    return None


@pytest.mark.requirement("core-sdk-client")
@settings(max_examples=100)  # of thirteen types
@given(st.sampled_from(KINDS).flatmap(messages))
def test_a_missing_field_is_told_as_by_the_sdk(message: Message) -> None:
    assert outcome(require, message) == outcome(validate_proto_required_fields, message)


def test_the_empty_message_of_each_type_is_judged_as_by_the_sdk() -> None:
    for kind in KINDS:
        assert outcome(require, kind()) == outcome(validate_proto_required_fields, kind())
