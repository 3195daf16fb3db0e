"""Errors from the handler to the wire and from the wire to the client."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from a2a.client.errors import A2AClientError
from a2a.server.request_handlers.response_helpers import build_error_response
from a2a.utils import errors as sdk
from a2a.utils.errors import JSON_RPC_ERROR_CODE_MAP, A2AError, TaskNotFoundError

from postroom_a2a.rpc import Code, RpcError
from postroom_a2a.sdk.errors import ServerBusyError, UnknownCodeError
from postroom_a2a.sdk.translation import V03, V10, Dialect, a2a_error, rpc_error

KINDS = list(JSON_RPC_ERROR_CODE_MAP)
NEW = {sdk.ExtensionSupportRequiredError, sdk.VersionNotSupportedError}


def over_the_wire(error: A2AError, dialect: Dialect) -> A2AError:
    return a2a_error(RpcError.read(rpc_error(error, dialect).document()))


@pytest.mark.requirement("core-sdk-client")
def test_error_arrives_as_it_was_raised():
    for kind in KINDS:
        for dialect in [V10, V03]:
            for data in [None, {"id": "t-1", "tries": 3}]:
                arrived = over_the_wire(kind("what happened", data), dialect)
                expected = sdk.InternalError if dialect is V03 and kind in NEW else kind
                assert (type(arrived), arrived.message, arrived.data) == (
                    expected,
                    "what happened",
                    data,
                )


def test_error_of_a2a_10_is_that_of_the_sdk():
    for kind in [kind for kind in KINDS if kind is not sdk.JSONParseError]:
        for raised in (kind(), kind("text", {"a": "b"})):
            assert rpc_error(raised, V10).document() == build_error_response(1, raised)["error"]


def test_own_kind_of_an_error_keeps_its_code():
    class Gone(TaskNotFoundError):
        """One that an agent made for itself."""

    document = rpc_error(Gone("gone", {"since": "May"}), V10).document()
    assert document["code"] == Code.TASK_NOT_FOUND
    assert document["data"][0]["reason"] == "TASK_NOT_FOUND"
    assert document["data"][0]["metadata"] == {"since": "May"}


def test_error_that_a2a_does_not_name_is_internal():
    assert rpc_error(A2AError("odd"), V10).document()["code"] == Code.INTERNAL_ERROR


@pytest.mark.requirement("core-sdk-client")
def test_unknown_code_is_kept():
    for data in [None, {"a": 1}, ["x"], "text", 7]:
        error = a2a_error(RpcError.read({"code": -31337, "message": "odd", "data": data}))
        assert isinstance(error, A2AClientError)
        assert isinstance(error, UnknownCodeError)
        assert (error.code, error.message, error.data) == (-31337, "odd", data)
        passed_on = over_the_wire(error, V10)
        assert isinstance(passed_on, UnknownCodeError)
        assert (passed_on.code, passed_on.message, passed_on.data) == (-31337, "odd", data)


def test_unknown_code_is_internal_in_03():
    document = rpc_error(UnknownCodeError(-31337, "odd", "why"), V03).document()
    assert document == {"code": -32603, "message": "odd", "data": "why"}


def test_busy_is_an_error_of_its_own():
    for dialect in [V10, V03]:
        arrived = over_the_wire(ServerBusyError("later"), dialect)
        assert isinstance(arrived, ServerBusyError)
        assert (arrived.code, arrived.message) == (Code.SERVER_BUSY, "later")


def test_details_that_are_not_all_ours_are_kept():
    details = [{"@type": "type.googleapis.com/google.rpc.Help", "links": []}]
    error = a2a_error(RpcError.read({"code": -32001, "message": "m", "data": details}))
    assert isinstance(error, TaskNotFoundError)
    assert error.data == details


def test_data_that_is_no_json_is_told_as_text():
    loop: dict[str, Any] = {}
    loop["loop"] = loop
    raised = TaskNotFoundError("gone", {"at": Path("here"), ("a", "b"): 1})
    assert rpc_error(raised, V03).document()["data"] == {"at": "here"}
    assert rpc_error(raised, V10).document()["data"][0]["metadata"] == {"at": "here"}
    assert "data" not in rpc_error(TaskNotFoundError("gone", loop), V03).document()
