"""The tables for ProtoJSON read and write what protobuf's own module does, faults and all."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict, ParseDict, SerializeToJsonError
from hypothesis import given
from hypothesis import strategies as st

from a2a import types
from library.translation import objects
from postroom_a2a.ecma_json import dumps
from postroom_a2a.sdk.translation import protojson
from postroom_a2a.sdk.translation.values import UNREADABLE

DEPTH = 64

junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2)
    ),
    max_leaves=4,
)


def read(value: Any, kind: Any, by: Any) -> Any:
    """The message, or the text of the fault."""
    try:
        return by(value, kind)
    except UNREADABLE as error:
        return f"{type(error).__name__}: {error}"


def ours(value: Any, kind: Any) -> Any:
    return protojson.read(value, kind, depth=DEPTH)


def theirs(value: Any, kind: Any) -> Any:
    return ParseDict(value, kind(), ignore_unknown_fields=True, max_recursion_depth=DEPTH)


def same(value: Any, kind: Any = types.StreamResponse) -> None:
    expected = read(value, kind, theirs)
    found = read(value, kind, ours)

    assert found == expected
    if not isinstance(expected, str):  # equality does not see which empty messages are there
        assert found.SerializeToString(deterministic=True) == expected.SerializeToString(
            deterministic=True
        )


@given(objects.events)
def test_text_is_that_of_protobufs_module_and_is_read_as_by_it(event: types.StreamResponse) -> None:
    assert protojson.write(event) == dumps(MessageToDict(event))
    same(MessageToDict(event))
    same(MessageToDict(event, preserving_proto_field_name=True))


@given(objects.events, st.data())
def test_what_somebody_spoilt_is_read_as_by_protobufs_module(
    event: types.StreamResponse, data: st.DataObject
) -> None:
    value = holder = MessageToDict(event)
    while True:
        name = data.draw(
            st.sampled_from(sorted(holder)) | st.sampled_from(["parts", "content", "[a.b]"])
        )
        inner = holder.get(name)
        inner = inner[0] if isinstance(inner, list) and inner else inner
        if isinstance(inner, dict) and inner and data.draw(st.booleans()):
            holder = inner
            continue
        holder[name] = data.draw(junk)
        break
    same(value)


@pytest.mark.parametrize(
    "part",
    [
        {"text": "a", "url": "b"},
        {"text": "a", "url": None},
        {"text": None},
        {"data": None},
        {"data": {}},
        {"data": [1, "x", None, {"a": [True]}]},
        {"raw": "_-8"},
        {"raw": "+/8="},
        {"raw": "?"},
        {"text": "\ud800"},
        {"text": "a", "mediaType": "b", "media_type": "c"},
        {"text": "a", "metadata": {}},
        {"text": "a", "unknown": {"deep": [1]}},
        {"text": "a", "\ud800": 1},
        {"text": "a", "[lf.a2a.v1.extension]": 1},
        {"text": 1},
        [],
        None,
    ],
)
def test_part_is_read_as_by_protobufs_module(part: Any) -> None:
    same({"message": {"messageId": "m", "role": "ROLE_USER", "parts": [part]}})
    same({"message": {"messageId": "m", "role": "ROLE_USER", "parts": part}})


@pytest.mark.parametrize(
    "status",
    [
        {"state": "TASK_STATE_WORKING", "timestamp": "2026-01-02T03:04:05.678Z"},
        {"state": "TASK_STATE_WORKING", "timestamp": "2026-01-02T03:04:05+02:00"},
        {"state": "TASK_STATE_NEW", "timestamp": "yesterday"},
        {"state": "TASK_STATE_NEW"},
        {"state": 3},
        {"state": 300},
        {"state": "3"},
        {"timestamp": 1},
    ],
)
def test_status_is_read_as_by_protobufs_module(status: Any) -> None:
    same({"task": {"id": "t", "status": status}})


@pytest.mark.parametrize("limit", [1, -1, 2**31, 1.0, 1.5, "1", True, None])
def test_whole_number_is_read_as_by_protobufs_module(limit: Any) -> None:
    same({"configuration": {"historyLength": limit}}, types.SendMessageRequest)


@pytest.mark.parametrize("depth", [8, 40, 47, 48, 49, 60, 200])
def test_free_json_may_be_as_deep_as_protobufs_module_lets_it(depth: int) -> None:
    value: Any = "x"
    for _ in range(depth):
        value = {"a": value}
    same({"message": {"messageId": "m", "metadata": value}})


def test_number_that_json_has_no_word_for_is_null_and_far_times_are_refused() -> None:
    message = types.Message(message_id="m")
    ParseDict({"a": 1}, message.metadata)
    message.metadata.fields["a"].number_value = float("nan")
    assert protojson.write(message) == b'{"messageId":"m","metadata":{"a":null}}'

    status = types.TaskStatus(state=types.TaskState.TASK_STATE_WORKING)
    status.timestamp.seconds = 2**60
    with pytest.raises(SerializeToJsonError):
        protojson.write(status)


def test_members_of_a_card_are_written_as_by_protobufs_module() -> None:
    card = types.AgentCard(name="a")
    card.security_schemes["10"].api_key_security_scheme.name = "x"
    card.security_schemes["9"].api_key_security_scheme.name = "y"
    assert protojson.write(card) == dumps(MessageToDict(card))
