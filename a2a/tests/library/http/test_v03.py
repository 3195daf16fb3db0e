"""A2A 0.3 in JSON: the same as through protobuf, whatever is said, and nothing is lost on the way there and back."""

from __future__ import annotations

from base64 import b64decode
from contextlib import suppress
from typing import Any

import pytest
from a2a.compat.v0_3 import a2a_v0_3_pb2 as legacy_pb
from a2a.compat.v0_3 import conversions, proto_utils
from a2a.compat.v0_3.types import SendMessageRequest as LegacySend
from google.protobuf.json_format import MessageToDict, ParseDict
from hypothesis import given
from hypothesis import strategies as st

from a2a import types
from library.translation import objects
from postroom_a2a.errors import ProtocolViolation
from postroom_a2a.http import cards, rest, v03
from postroom_a2a.http.errors import LEGACY
from postroom_a2a.rpc import Code, RpcError
from postroom_a2a.sdk.translation import OPERATIONS, V03

pytestmark = pytest.mark.requirement("a2a-http-versions")

STREAM = OPERATIONS["SendStreamingMessage"]
requests = st.sampled_from(sorted(objects.requests)).flatmap(
    lambda name: st.tuples(st.just(name), objects.requests[name])
)


def proto(kind: Any, document: Any) -> Any:
    return ParseDict(document, kind(), ignore_unknown_fields=True)


def plain_bytes(message: Any) -> None:
    """Undo what the SDK does beside the specification: it encodes bytes twice."""
    for known, value in message.ListFields():
        if known.name == "file_with_bytes":
            message.file_with_bytes = b64decode(value)
        elif known.message_type is not None and known.message_type.name != "Struct":
            for each in value if known.is_repeated else [value]:
                plain_bytes(each)


def bare(message: Any) -> Any:
    """`message` without empty objects, which mean the same as none."""
    for known, value in message.ListFields():
        if known.message_type is None:
            continue
        if known.message_type.name == "Struct":
            if not value.fields:
                message.ClearField(known.name)
        elif known.is_repeated:
            for each in value:
                if hasattr(each, "ListFields"):
                    bare(each)
        elif known.message_type.name != "Value":
            bare(value)
            if not value.ListFields() and not known.containing_oneof:
                message.ClearField(known.name)
    return message


@given(objects.events)
def test_an_event_is_the_same_as_through_protobuf(event: Any):
    down = v03.event_down(MessageToDict(event))
    through = V03.write_result(STREAM, event)
    assert down["kind"] == through["kind"]
    assert down.get("final") == through.get("final")
    assert bare(V03.read_result(STREAM, down)) == bare(V03.read_result(STREAM, through))
    up = v03.event_up(through)
    assert bare(proto(types.StreamResponse, up)) == bare(V03.read_result(STREAM, through))


@given(requests)
def test_a_request_is_the_same_as_through_protobuf(request: tuple[str, Any]):
    name, said = request
    operation = OPERATIONS[name]
    legacy = V03.write_params(operation, said) or {}
    try:
        through = V03.read_params(operation, legacy)
    except RpcError:
        return  # what lacks an id is refused by whom the request is for
    up = v03.request_up(name, legacy)
    if name.endswith("TaskPushNotificationConfig") and not legacy.get(
        "pushNotificationConfigId", legacy.get("pushNotificationConfig", {}).get("id")
    ):
        up["id"] = ""
    read = proto(type(said), up)
    if name in ("SendMessage", "SendStreamingMessage") and not through.message.role:
        read.message.role = 0
    assert bare(read) == bare(through)
    method, down = v03.request_down(name, MessageToDict(said))
    assert LEGACY[method] == name
    assert bare(V03.read_params(operation, down)) == through


@given(objects.events)
def test_what_0_3_has_a_place_for_survives_the_way_down_and_up(event: Any):
    fits = v03.event_up(v03.event_down(MessageToDict(event)))
    assert v03.event_up(v03.event_down(fits)) == fits


@given(objects.events)
def test_an_event_over_rest_is_one_of_the_sdk(event: Any):
    known = V03.read_result(STREAM, V03.write_result(STREAM, event))
    ours = ParseDict(rest.event_down(MessageToDict(known)), legacy_pb.StreamResponse())
    compat = conversions.to_compat_stream_response(known, 1).result
    theirs = proto_utils.ToProto.stream_response(compat)
    plain_bytes(theirs)
    for each in (ours, theirs):
        if each.HasField("status_update"):
            each.status_update.final = False  # what it says of interrupted tasks differs on purpose
    assert bare(ours) == bare(theirs)


@given(objects.requests["SendMessage"])
def test_a_send_over_rest_is_read_as_the_sdk_writes_it(request: Any):
    legacy = conversions.to_compat_send_message_request(request, 1)
    written = legacy_pb.SendMessageRequest(
        request=proto_utils.ToProto.message(legacy.params.message),
        configuration=proto_utils.ToProto.message_send_configuration(legacy.params.configuration),
    )
    up = proto(types.SendMessageRequest, rest.send_up(MessageToDict(written)))
    theirs = conversions.to_core_send_message_request(
        LegacySend(id=1, params=proto_utils.FromProto.message_send_params(written))
    )
    assert up.message.message_id == theirs.message.message_id
    assert [part.WhichOneof("content") for part in up.message.parts] == [
        part.WhichOneof("content") for part in theirs.message.parts
    ]
    assert up.configuration.return_immediately == theirs.configuration.return_immediately


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["kind", "role", "parts", "message", "status", "state", "task", "file", "data"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(json_values, st.sampled_from(sorted(LEGACY.values())))
def test_whatever_a_peer_sends_is_read_or_refused_with_its_error(value: Any, method: str):
    with suppress(RpcError):
        v03.request_up(method, value)
    for read in (v03.event_up, lambda value: v03.answer_up(method, value)):
        with suppress(ProtocolViolation):
            read(value)
    if isinstance(value, dict):
        with suppress(RpcError):
            rest.send_up(value)
        with suppress(RpcError):
            rest.push_request_up("t", value)


def test_a_list_of_tasks_is_not_of_0_3():
    with pytest.raises(RpcError) as refused:
        v03.request_down("ListTasks", {})
    assert refused.value.code is Code.UNSUPPORTED_OPERATION


def test_a_card_of_both_versions_is_the_same_card_to_both():
    card = {
        "name": "n",
        "supportedInterfaces": [
            {"url": "https://a.test/a", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
            {"url": "https://a.test/a", "protocolBinding": "JSONRPC", "protocolVersion": "0.3"},
            {"url": "https://a.test/b", "protocolBinding": "HTTP+JSON", "protocolVersion": "0.3"},
        ],
        "capabilities": {"streaming": True, "extendedAgentCard": True},
        "securitySchemes": {
            "k": {"apiKeySecurityScheme": {"name": "X-API-Key", "location": "header"}},
            "b": {"httpAuthSecurityScheme": {"scheme": "Bearer"}},
        },
        "securityRequirements": [{"schemes": {"b": {"list": []}}}],
    }
    both = cards.with_legacy(card)
    assert cards.card_up(both) == card
    assert (both["url"], both["preferredTransport"]) == ("https://a.test/a", "JSONRPC")
    assert both["additionalInterfaces"] == [{"url": "https://a.test/b", "transport": "HTTP+JSON"}]
    assert both["securitySchemes"]["k"]["in"] == "header"
    assert both["security"] == [{"b": []}]
    only = {name: value for name, value in both.items() if name != "supportedInterfaces"}
    up = cards.card_up(only)
    assert up["supportedInterfaces"] == [
        {**each, "protocolVersion": "0.3.0"} for each in card["supportedInterfaces"][1:]
    ]
    assert cards.with_legacy({**card, "supportedInterfaces": []}).keys() == card.keys()
    assert cards.card_up("x") == {}
