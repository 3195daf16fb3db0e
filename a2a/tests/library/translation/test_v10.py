"""A2A 1.0 in JSON: ProtoJSON as the SDK's own doors write and read it."""

from __future__ import annotations

import pytest
from a2a.server.routes.common import serialize_list_tasks_response
from google.protobuf.json_format import MessageToDict
from hypothesis import given

from a2a import types
from library.translation import objects
from postroom_a2a.errors import ProtocolViolation
from postroom_a2a.rpc import Code, RpcError
from postroom_a2a.sdk.translation import OPERATIONS, V03, V10, operation_of

SEND = OPERATIONS["SendMessage"]


def test_no_method_names_two_operations():
    names = [name for each in OPERATIONS.values() for name in (each.name, each.legacy) if name]
    assert len(set(names)) == len(names) == 21
    for operation in OPERATIONS.values():
        assert operation_of(operation.name) == (operation, V10)
        assert V10.method(operation) == operation.name
        if operation.legacy:
            assert operation_of(operation.legacy) == (operation, V03)
    assert operation_of("") is None
    assert operation_of("tasks/list") is None


@given(objects.events)
def test_event_is_read_as_it_was_written(event: types.StreamResponse):
    operation = OPERATIONS["SubscribeToTask"]
    written = V10.write_result(operation, event)
    assert written == MessageToDict(event)
    assert V10.read_result(operation, written) == event


def test_page_of_tasks_is_that_of_the_sdk():
    for wanted in [True, False]:
        request = types.ListTasksRequest(include_artifacts=wanted)
        page = types.ListTasksResponse(
            tasks=[
                types.Task(id="a", artifacts=[types.Artifact(artifact_id="1")]),
                types.Task(id="b"),
            ]
        )
        written = V10.write_result(OPERATIONS["ListTasks"], page, request)
        assert written == serialize_list_tasks_response(page, wanted)


def test_unknown_members_are_ignored():
    params = {"id": "t", "generation": 3}
    assert V10.read_params(OPERATIONS["GetTask"], params) == types.GetTaskRequest(id="t")


def test_wrong_member_is_named():
    for params, member in [
        ({"message": 1}, "message"),
        ({"message": {"messageId": 1}}, "messageId"),
        ({"message": {"parts": [{"text": "\ud800"}]}}, "text"),
        ({"message": {"parts": [{"text": "a", "url": "b"}]}}, "Part"),
        ({"metadata": {"a": "\ud800"}}, "metadata"),
        ({"tenant": 1}, "tenant"),
        ({"\ud800": 1}, "half of a character"),
    ]:
        with pytest.raises(RpcError, match=member) as caught:
            V10.read_params(SEND, params)
        assert caught.value.code == Code.INVALID_PARAMS


def test_result_that_is_none_breaks_the_protocol():
    for value in [None, [], {}, {"task": 1}, {"status": {}}]:
        with pytest.raises(ProtocolViolation, match="SendMessage"):
            V10.read_result(SEND, value)
