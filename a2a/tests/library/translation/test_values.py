"""Values that one encoding takes and another does not: none of them makes a task unreadable for who reads it later."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from google.protobuf.json_format import ParseDict
from hypothesis import given
from hypothesis import strategies as st

from a2a import types
from library.translation.agents import Scripted
from postroom_a2a.ecma_json import loads
from postroom_a2a.operations import Call
from postroom_a2a.rpc import Code, RpcError
from postroom_a2a.sdk.operations import SdkOperations
from postroom_a2a.sdk.translation import METHODS, OPERATIONS

pytestmark = pytest.mark.anyio

PART = {"text": "hi"}
NAMES = {"1.0": ("SendMessage", "ROLE_USER"), "0.3": ("message/send", "user")}


class Echo(Scripted):
    """Answers with what it was sent."""

    async def on_message_send(self, params: Any, context: Any) -> Any:
        return params.message

    async def on_message_send_stream(self, params: Any, context: Any) -> Any:
        yield params.message


def said(version: str, **more: Any) -> dict[str, Any]:
    message = {"messageId": "m", "role": NAMES[version][1], "parts": [PART], **more}
    return {"message": {"kind": "message", **message} if version == "0.3" else message}


def data_part(version: str, data: Any) -> dict[str, Any]:
    return {"kind": "data", "data": data} if version == "0.3" else {"data": data}


def nested(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels):
        value = {"a": value}
    return value


def test_a_number_that_is_none_is_no_json():
    for text in ["1e999", "-1e999", "[1.5e400]", "NaN", "Infinity"]:
        with pytest.raises(ValueError):
            loads(text.encode())


async def test_what_cannot_be_kept_is_refused():
    for version in NAMES:
        wrong: list[dict[str, Any]] = [
            {"parts": [data_part(version, {"a": 10**400})]},
            {"metadata": {"a": 10**400}},
            {"metadata": nested(33)},
            {"metadata": nested(5000)},
        ]
        for more in wrong:
            call = Call(1, NAMES[version][0], said(version, **more))
            with pytest.raises(RpcError) as refused:
                await SdkOperations(Echo()).answer(call)
            assert refused.value.code == Code.INVALID_PARAMS


async def test_what_is_taken_as_json_can_be_read_as_protobuf():
    for version in NAMES:
        levels = 0
        for depth in range(1, 60):
            parts = [data_part(version, nested(depth))]
            call = Call(1, NAMES[version][0], said(version, parts=parts, metadata=nested(depth)))
            handler = Scripted()
            try:
                await SdkOperations(handler).answer(call)
            except RpcError as error:
                assert error.code == Code.INVALID_PARAMS  # noqa: PT017
                continue
            levels = depth
            page = types.ListTasksResponse()
            page.tasks.add().history.add().MergeFrom(handler.asked.message)
            types.ListTasksResponse.FromString(page.SerializeToString())
        assert levels >= 24


async def test_a_number_without_a_place_in_json_is_written_as_null():
    for number in [math.nan, math.inf, -math.inf]:
        for version in NAMES:
            message = types.Message(message_id="m", role=types.Role.ROLE_AGENT)
            message.metadata["b"] = number
            part = message.parts.add()
            part.data.struct_value["a"] = [number, 1]
            task = types.Task(id="t", context_id="c", history=[message])
            task.artifacts.add(artifact_id="a", parts=[part])
            task.metadata["c"] = number
            method = "GetTask" if version == "1.0" else "tasks/get"
            before = task.SerializeToString(deterministic=True)
            answer = await SdkOperations(Scripted(task)).answer(Call(1, method, {"id": "t"}))
            read = json.loads(answer)
            assert read["history"][0]["metadata"] == {"b": None}
            assert read["history"][0]["parts"][0]["data"] == {"a": [None, 1]}
            assert read["artifacts"][0]["parts"][0]["data"] == {"a": [None, 1]}
            assert read["metadata"] == {"c": None}
            assert task.SerializeToString(deterministic=True) == before


MEMBERS = st.sampled_from(
    (
        *(
            "id",
            "taskId",
            "tenant",
            "message",
            "messageId",
            "contextId",
            "role",
            "parts",
            "metadata",
        ),
        *(
            "text",
            "data",
            "raw",
            "url",
            "file",
            "bytes",
            "uri",
            "name",
            "mimeType",
            "mediaType",
            "kind",
        ),
        *("configuration", "historyLength", "blocking", "returnImmediately", "acceptedOutputModes"),
        *(
            "pushNotificationConfig",
            "taskPushNotificationConfig",
            "authentication",
            "schemes",
            "scheme",
        ),
        *(
            "pageSize",
            "pageToken",
            "status",
            "statusTimestampAfter",
            "includeArtifacts",
            "extensions",
        ),
        *("referenceTaskIds", "credentials", "token", "filename", "pushNotificationConfigId"),
    )
)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**400), 10**400)
    | st.floats()
    | st.text()
    | st.sampled_from(
        ["\ud800", "ROLE_USER", "user", "TASK_STATE_WORKING", "0001-01-01T00:00:00Z"]
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(MEMBERS | st.text(), inner),
    max_leaves=8,
)
PARAMS = st.dictionaries(MEMBERS, VALUES) | VALUES


@given(st.sampled_from(sorted(METHODS)), PARAMS)
async def test_any_parameters_are_performed_or_refused(method: str, params: Any):
    await _performed(Call(1, method, params))


@given(st.sampled_from(["SendMessage", "SendStreamingMessage"]), st.dictionaries(MEMBERS, VALUES))
async def test_any_message_is_performed_or_refused(method: str, more: dict[str, Any]):
    await _performed(Call(1, method, said("1.0", **more)))
    legacy = "message/send" if method == "SendMessage" else "message/stream"
    await _performed(Call(1, legacy, said("0.3", **more)))


@given(st.sampled_from(sorted(OPERATIONS)), st.binary(max_size=60), st.data())
async def test_any_bytes_are_performed_or_refused(method: str, noise: bytes, data: st.DataObject):
    good = ParseDict(said("1.0"), types.SendMessageRequest()).SerializeToString()
    at = data.draw(st.integers(0, len(good)))
    for payload in (noise, good[:at] + noise + good[at:], good[:at] + noise):
        await _performed(Call(1, method, payload, binary=True))


async def _performed(call: Call) -> None:
    operations = SdkOperations(Echo())
    try:
        if operations.streams(call.method):
            async for _ in operations.stream(call):
                pass
        else:
            await operations.answer(call)
    except RpcError as error:
        assert error.code != Code.INTERNAL_ERROR  # noqa: PT017
