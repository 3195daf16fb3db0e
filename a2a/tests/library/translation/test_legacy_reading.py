"""A2A 0.3 where the SDK's own translation differs or refuses, and what is refused by ours."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from a2a import types
from library.translation import objects
from postroom_a2a.errors import ProtocolViolation
from postroom_a2a.rpc import Code, RpcError
from postroom_a2a.sdk.translation import OPERATIONS, V03

GOING_ON = {"submitted", "working"}
STREAM = OPERATIONS["SendStreamingMessage"]
SEND = OPERATIONS["SendMessage"]
CARD = OPERATIONS["GetExtendedAgentCard"]

# ── where ours differs ───────────────────────────────────────────────────────────────────────────────


def test_final_marks_all_but_tasks_that_go_on():
    for state in types.TaskState.values():
        event = types.StreamResponse(
            status_update=types.TaskStatusUpdateEvent(status=types.TaskStatus(state=state))
        )
        written = V03.write_result(STREAM, event)
        assert written["final"] is (written["status"]["state"] not in GOING_ON)


def test_null_members_of_free_objects_are_kept():
    params = {"message": message() | {"metadata": {"a": None}}}
    assert V03.write_params(SEND, V03.read_params(SEND, params)) == params


def test_part_without_content_is_an_empty_text():
    held = types.SendMessageResponse(message=types.Message(parts=[types.Part()]))
    assert V03.write_result(SEND, held)["parts"] == [{"kind": "text", "text": ""}]


def test_security_scheme_of_an_unknown_type_is_left_out():
    schemes = {"new": {"type": "quantum"}, "old": {"type": "http", "scheme": "Bearer"}}
    card = V03.read_result(CARD, {"name": "a", "securitySchemes": schemes})
    assert set(card.security_schemes) == {"old"}
    card.security_schemes["none"].SetInParent()
    assert set(V03.write_result(CARD, card)["securitySchemes"]) == {"old"}


def test_card_without_an_interface_of_its_version_is_refused():
    interface = types.AgentInterface(url="nats://a", protocol_version="1.0")
    with pytest.raises(RpcError) as caught:
        V03.write_result(CARD, types.AgentCard(supported_interfaces=[interface]))
    assert caught.value.code == Code.VERSION_NOT_SUPPORTED


def test_file_is_read_in_every_base64():
    for encoded in ["-_-_", "+/+/", "+/+\n/", "-_8", "-_8=", "+/8="]:
        part = {"kind": "file", "file": {"bytes": encoded}}
        request = V03.read_params(SEND, {"message": message() | {"parts": [part]}})
        assert request.message.parts[0].raw in {b"\xfb\xff\xbf", b"\xfb\xff"}


def test_missing_kind_is_inferred():
    for event in [
        {"messageId": "m", "role": "agent", "parts": [{"text": "hi"}]},
        {"id": "t", "contextId": "c", "status": {"state": "working"}},
        {"taskId": "t", "contextId": "c", "status": {"state": "working"}, "final": False},
        {
            "taskId": "t",
            "contextId": "c",
            "artifact": {"artifactId": "a", "parts": [{"data": {}}, {"file": {"uri": "x:y"}}]},
            "append": False,
            "lastChunk": False,
        },
    ]:
        written = V03.write_result(STREAM, V03.read_result(STREAM, event))
        assert written.pop("kind")
        for part in written.get("parts", []) + written.get("artifact", {}).get("parts", []):
            assert part.pop("kind")
        assert written == event


def message() -> dict[str, Any]:
    parts = [{"kind": "text", "text": "hi"}]
    return {"kind": "message", "role": "user", "messageId": "m", "parts": parts}


# ── what is wrong ────────────────────────────────────────────────────────────────────────────────────


def wrong(name: str, params: Any) -> str:
    with pytest.raises(RpcError) as caught:
        V03.read_params(OPERATIONS[name], params)
    assert caught.value.code == Code.INVALID_PARAMS
    return caught.value.message


def test_wrong_member_of_a_message_is_named():
    for change, member in [
        ({"messageId": 1}, "message.messageId "),
        ({"messageId": None}, "message.messageId "),
        ({"role": "king"}, "message.role "),
        ({"role": ["user"]}, "message.role "),
        ({"parts": {}}, "message.parts "),
        ({"parts": ["hi"]}, "message.parts[0] "),
        ({"parts": [{"kind": "text"}]}, "message.parts[0].text "),
        ({"parts": [{"kind": "text", "text": 1}]}, "message.parts[0].text "),
        ({"parts": [{"kind": "text", "text": "\ud800"}]}, "message.parts[0].text "),
        ({"parts": [{"kind": "video"}]}, "message.parts[0].kind "),
        ({"parts": [{"kind": ["text"]}]}, "message.parts[0].kind "),
        ({"parts": [{}]}, "message.parts[0].kind "),
        ({"parts": [{"kind": "file"}]}, "message.parts[0].file "),
        ({"parts": [{"kind": "file", "file": {}}]}, "message.parts[0].file.bytes "),
        ({"parts": [{"kind": "file", "file": {"bytes": "é"}}]}, "message.parts[0].file.bytes "),
        ({"parts": [{"kind": "file", "file": {"bytes": "abcde"}}]}, "message.parts[0].file.bytes "),
        ({"parts": [{"kind": "data", "data": 1}]}, "message.parts[0].data "),
        ({"extensions": ["a", 1]}, "message.extensions[1] "),
        ({"metadata": []}, "message.metadata "),
        ({"metadata": {"a": "\ud800"}}, "message.metadata "),
    ]:
        assert wrong("SendMessage", {"message": message() | change}).startswith(member)


def test_wrong_parameter_is_named():
    for name, params, member in [
        ("SendMessage", {}, "message "),
        ("SendMessage", {"message": message(), "configuration": 1}, "configuration "),
        (
            "SendMessage",
            {"message": message(), "configuration": {"blocking": "yes"}},
            "configuration.blocking ",
        ),
        (
            "SendMessage",
            {"message": message(), "configuration": {"historyLength": 2**31}},
            "configuration.historyLength ",
        ),
        ("GetTask", {}, "id "),
        ("GetTask", {"id": 7}, "id "),
        ("GetTask", {"id": "t", "historyLength": True}, "historyLength "),
        ("CancelTask", {"id": ""}, "id "),
        ("CreateTaskPushNotificationConfig", {"taskId": "t"}, "pushNotificationConfig "),
        (
            "CreateTaskPushNotificationConfig",
            {"taskId": "t", "pushNotificationConfig": {"url": 1}},
            "pushNotificationConfig.url ",
        ),
        ("DeleteTaskPushNotificationConfig", {"id": "t"}, "pushNotificationConfigId "),
    ]:
        assert wrong(name, params).startswith(member)


def test_nesting_without_end_is_refused():
    nested: Any = {}
    for _ in range(500):
        nested = {"a": nested}
    assert wrong("SendMessage", {"message": message() | {"metadata": nested}})


WRONG: list[Any] = [None, True, 0, -1.5, 2**70, "", "\ud800", [], {}, [[]], [{"a": 1}], {"a": [{}]}]
RESULTS = {
    "SendMessage": objects.legacy_answers,
    "SubscribeToTask": objects.legacy_events,
    "ListTaskPushNotificationConfigs": objects.legacy_task_pushes,
    "GetExtendedAgentCard": objects.legacy_cards,
}


def spoilt(data: st.DataObject, value: Any) -> Any:
    """`value` with one of its members, however deep, replaced by something else."""
    inner: list[Any] = []
    if isinstance(value, dict | list):
        inner = list(value) if isinstance(value, dict) else list(range(len(value)))
    if not inner or data.draw(st.integers(0, 3)) == 0:
        return data.draw(st.sampled_from(WRONG))
    at = data.draw(st.sampled_from(inner))
    copy = value.copy()
    copy[at] = spoilt(data, value[at])
    return copy


@pytest.mark.parametrize("name", objects.legacy_params)
@given(data=st.data())
def test_spoilt_parameters_are_read_or_refused(name: str, data: st.DataObject):
    params = spoilt(data, data.draw(objects.legacy_params[name]))
    try:
        V03.read_params(OPERATIONS[name], params)
    except RpcError as error:
        assert error.code == Code.INVALID_PARAMS  # noqa: PT017 (either is right)


@pytest.mark.parametrize("name", RESULTS)
@given(data=st.data())
def test_spoilt_result_is_read_or_breaks_the_protocol(name: str, data: st.DataObject):
    result = spoilt(data, data.draw(RESULTS[name]))
    with suppress(ProtocolViolation):
        V03.read_result(OPERATIONS[name], result)


def test_operation_that_the_version_does_not_have_is_refused():
    operation = OPERATIONS["ListTasks"]
    for do in (lambda: V03.method(operation), lambda: V03.write_params(operation, None)):
        with pytest.raises(RpcError) as caught:
            do()
        assert caught.value.code == Code.UNSUPPORTED_OPERATION


def test_result_that_is_none_breaks_the_protocol():
    for name, value in [
        ("SendMessage", None),
        ("SendMessage", {"kind": "status-update"}),
        ("SendStreamingMessage", {}),
        ("GetTask", []),
        ("GetTask", {"status": {"timestamp": "yesterday"}}),
        ("ListTaskPushNotificationConfigs", {}),
        ("GetExtendedAgentCard", "card"),
        ("GetExtendedAgentCard", {"capabilities": {"streaming": "yes"}}),
        ("GetExtendedAgentCard", {"security": [{"a": "b"}]}),
        ("GetExtendedAgentCard", {"provider": "\ud800"}),
        ("GetExtendedAgentCard", {"securitySchemes": {"\ud800": {"type": "mutualTLS"}}}),
    ]:
        with pytest.raises(ProtocolViolation, match=OPERATIONS[name].legacy):
            V03.read_result(OPERATIONS[name], value)
