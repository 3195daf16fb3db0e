"""A2A 0.3 as the SDK's own translation has it.

The differences: `final` (see `_expected`), and those in test_legacy_reading.py.
"""

from __future__ import annotations

from typing import Any

import pytest
from a2a.compat.v0_3 import conversions
from a2a.compat.v0_3 import types as legacy
from hypothesis import given
from hypothesis import strategies as st

from a2a import types
from library.translation import objects
from postroom_a2a.sdk.translation import OPERATIONS, V03

GOING_ON = {"submitted", "working"}
REQUESTS: dict[str, tuple[Any, Any, Any]] = {
    "SendMessage": (
        legacy.SendMessageRequest,
        conversions.to_core_send_message_request,
        conversions.to_compat_send_message_request,
    ),
    "GetTask": (
        legacy.GetTaskRequest,
        conversions.to_core_get_task_request,
        conversions.to_compat_get_task_request,
    ),
    "CancelTask": (
        legacy.CancelTaskRequest,
        conversions.to_core_cancel_task_request,
        conversions.to_compat_cancel_task_request,
    ),
    "SubscribeToTask": (
        legacy.TaskResubscriptionRequest,
        conversions.to_core_subscribe_to_task_request,
        conversions.to_compat_subscribe_to_task_request,
    ),
    "CreateTaskPushNotificationConfig": (
        legacy.SetTaskPushNotificationConfigRequest,
        conversions.to_core_create_task_push_notification_config_request,
        conversions.to_compat_create_task_push_notification_config_request,
    ),
    "GetTaskPushNotificationConfig": (
        legacy.GetTaskPushNotificationConfigRequest,
        conversions.to_core_get_task_push_notification_config_request,
        conversions.to_compat_get_task_push_notification_config_request,
    ),
    "ListTaskPushNotificationConfigs": (
        legacy.ListTaskPushNotificationConfigRequest,
        conversions.to_core_list_task_push_notification_config_request,
        conversions.to_compat_list_task_push_notification_config_request,
    ),
    "DeleteTaskPushNotificationConfig": (
        legacy.DeleteTaskPushNotificationConfigRequest,
        conversions.to_core_delete_task_push_notification_config_request,
        conversions.to_compat_delete_task_push_notification_config_request,
    ),
}
STREAM = OPERATIONS["SendStreamingMessage"]
SEND = OPERATIONS["SendMessage"]
LIST = OPERATIONS["ListTaskPushNotificationConfigs"]
CARD = OPERATIONS["GetExtendedAgentCard"]

pytestmark = pytest.mark.requirement("a2a-http-versions")


def dumped(model: Any) -> Any:
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


def _expected(result: dict[str, Any]) -> dict[str, Any]:
    """The SDK says `final` of terminal states; in 0.3 it also marks where an agent waits for something."""
    if result["kind"] == "status-update":
        return result | {"final": result["status"]["state"] not in GOING_ON}
    return result


@pytest.mark.parametrize("name", REQUESTS)
@given(data=st.data())
def test_params_are_written_as_by_the_sdk(name: str, data: st.DataObject):
    request = data.draw(objects.requests[name])
    _, _, convert = REQUESTS[name]
    assert V03.write_params(OPERATIONS[name], request) == dumped(convert(request, 1).params)


@pytest.mark.parametrize("name", REQUESTS)
@given(data=st.data())
def test_params_are_read_as_by_the_sdk(name: str, data: st.DataObject):
    params = data.draw(objects.legacy_params[name])
    model, convert, _ = REQUESTS[name]
    method = OPERATIONS[name].legacy
    said = model.model_validate({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
    assert V03.read_params(OPERATIONS[name], params) == convert(said)


@given(objects.events)
def test_event_is_written_as_by_the_sdk(event: types.StreamResponse):
    expected = dumped(conversions.to_compat_stream_response(event, 1).result)
    assert V03.write_result(STREAM, event) == _expected(expected)


@given(objects.legacy_events)
def test_event_is_read_as_by_the_sdk(event: dict[str, Any]):
    said = legacy.SendStreamingMessageSuccessResponse.model_validate({"id": 1, "result": event})
    assert V03.read_result(STREAM, event) == conversions.to_core_stream_response(said)


@given(objects.answers)
def test_answer_is_written_as_by_the_sdk(answer: types.SendMessageResponse):
    expected = dumped(conversions.to_compat_send_message_response(answer, 1))["result"]
    assert V03.write_result(SEND, answer) == expected


@given(objects.legacy_answers)
def test_answer_is_read_as_by_the_sdk(answer: dict[str, Any]):
    said = legacy.SendMessageResponse.model_validate({"id": 1, "result": answer})
    assert V03.read_result(SEND, answer) == conversions.to_core_send_message_response(said)


@given(st.lists(objects.pushes, max_size=2))
def test_push_configs_are_written_as_by_the_sdk(configs: list[Any]):
    found = types.ListTaskPushNotificationConfigsResponse(configs=configs)
    expected = conversions.to_compat_list_task_push_notification_config_response(found, 1)
    assert V03.write_result(LIST, found) == dumped(expected)["result"]


@given(objects.legacy_task_pushes)
def test_push_configs_are_read_as_by_the_sdk(configs: list[Any]):
    model = legacy.ListTaskPushNotificationConfigResponse
    said = model.model_validate({"id": 1, "result": configs})
    expected = conversions.to_core_list_task_push_notification_config_response(said)
    assert V03.read_result(LIST, configs) == expected


@given(objects.cards)
def test_card_is_written_as_by_the_sdk(card: types.AgentCard):
    assert V03.write_result(CARD, card) == dumped(conversions.to_compat_agent_card(card))


@given(objects.legacy_cards)
def test_card_is_read_as_by_the_sdk(card: dict[str, Any]):
    expected = conversions.to_core_agent_card(legacy.AgentCard.model_validate(card))
    assert V03.read_result(CARD, card) == expected
