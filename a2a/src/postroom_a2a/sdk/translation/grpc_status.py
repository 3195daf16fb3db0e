"""The errors of A2A as gRPC states them: a status code, and `google.rpc.Status` with an ErrorInfo.

Codes are those of A2A 1.0.1, section 5.4.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import grpc
from google.protobuf import any_pb2
from google.protobuf.json_format import ParseDict, ParseError
from google.rpc import error_details_pb2  # noqa: F401 (a reader of `Any` finds its types where they were loaded)
from google.rpc.status_pb2 import Status

from postroom_a2a.errors import Forbidden, NotFound, PostroomError, RequestTimeout, Unauthorized
from postroom_a2a.http import errors
from postroom_a2a.rpc import Code, RpcError

AnyMessage: Any = getattr(any_pb2, "Any")  # noqa: B009 (made at run time, without a declaration)

DETAILS = "grpc-status-details-bin"
"""Trailing metadata that holds the `google.rpc.Status`."""

STATUS: Mapping[int, grpc.StatusCode] = MappingProxyType(
    {code: grpc.StatusCode[name] for code, (_, name) in errors.STATUS.items()}
    | {Code.METHOD_NOT_FOUND: grpc.StatusCode.UNIMPLEMENTED}
)
"""Code of a JSON-RPC error to gRPC's."""


def status_of(error: PostroomError | RpcError) -> tuple[grpc.StatusCode, Status]:
    """gRPC's code for an error, and the status with its details; a caller without a right gets no ErrorInfo."""
    if isinstance(error, Unauthorized):
        return _bare(grpc.StatusCode.UNAUTHENTICATED, error)
    if isinstance(error, Forbidden):
        return _bare(grpc.StatusCode.PERMISSION_DENIED, error)
    if isinstance(error, NotFound):  # the agent: a task is missed by an RpcError
        return _bare(grpc.StatusCode.NOT_FOUND, error)
    if isinstance(error, RequestTimeout):
        return _bare(grpc.StatusCode.DEADLINE_EXCEEDED, error)
    said = error if isinstance(error, RpcError) else RpcError.of(error)
    code = STATUS.get(int(said.code), grpc.StatusCode.UNKNOWN)
    if said.fault is not None:
        code = grpc.StatusCode[errors.status_of(said)[1]]
    document = said.document()
    details = [each for each in map(_packed, _listed(document.get("data"))) if each is not None]
    return code, Status(code=_number(code), message=document["message"], details=details)


def _bare(code: grpc.StatusCode, error: PostroomError) -> tuple[grpc.StatusCode, Status]:
    return code, Status(code=_number(code), message=str(error))


def _number(code: grpc.StatusCode) -> int:
    return code.value[0]


def _listed(data: Any) -> list[Any]:
    return data if isinstance(data, list) else []


def _packed(detail: Any) -> Any:
    """A detail of the error's data; None for one of an agent's own that no protobuf type describes."""
    if not isinstance(detail, dict) or "@type" not in detail:
        return None
    try:
        return ParseDict(detail, AnyMessage(), ignore_unknown_fields=True)
    except (ParseError, TypeError):
        return None
