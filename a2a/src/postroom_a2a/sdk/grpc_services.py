"""What gRPC itself has: services that tools ask any server for, and errors as a status.

Tools ask whether it serves (`grpc.health.v1`) and what it speaks (`grpc.reflection.v1alpha`). Probes have no key, so
health is answered for everybody, and by nothing but one short call. A reflection is a stream that its caller may hold
open, so it is for callers whom the server greets. A status is a code, as A2A 1.0.1, section 5.4, has them, and a
`google.rpc.Status` with an ErrorInfo.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from types import MappingProxyType
from typing import Any, Protocol

import grpc
import grpc.aio
from google.protobuf import any_pb2, wrappers_pb2
from google.protobuf.json_format import ParseDict, ParseError
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2  # noqa: F401 (a reader of `Any` finds its types where they were loaded)
from google.rpc.status_pb2 import Status
from grpc_reflection.v1alpha import reflection, reflection_pb2

from postroom_a2a.errors import Forbidden, NotFound, PostroomError, RequestTimeout, Unauthorized
from postroom_a2a.http import errors
from postroom_a2a.rpc import Code, RpcError

# Made at run time, without a declaration. The messages of the health service have one field, number 1, as these have.
StringValue: Any = getattr(wrappers_pb2, "StringValue")  # noqa: B009
UInt32Value: Any = getattr(wrappers_pb2, "UInt32Value")  # noqa: B009

HEALTH = "grpc.health.v1.Health"
SERVING = 1
"""`HealthCheckResponse.ServingStatus.SERVING`."""

PROBING = 5.0
"""Seconds in which the request of a probe has to come."""


class Admit(Protocol):
    """Lets one call in, whoever makes it, or refuses it."""

    def __call__(
        self, method: str, context: Any, *, known: bool
    ) -> AbstractAsyncContextManager[None]:
        """Hold a place for a call until the block ends.

        Args:
            known: only a caller whom the server greets may come in.
        """
        ...


def handlers(service: str, admit: Admit, patience: float) -> list[grpc.GenericRpcHandler]:
    """Both services of a server that has `service`; a reflection waits `patience` seconds for its caller."""
    names = (service, HEALTH, reflection.SERVICE_NAME)
    reflecting = reflection.aio.ReflectionServicer(names)

    async def check(_requests: Any, context: Any) -> UInt32Value:
        async with admit(f"/{HEALTH}/Check", context, known=False):
            try:
                async with asyncio.timeout(PROBING):
                    data = await context.read()
            except TimeoutError:
                await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "the request did not come")
            try:
                asked = StringValue.FromString(b"" if data is grpc.aio.EOF else data).value
            except DecodeError:
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "no HealthCheckRequest")
            if asked and asked not in names:
                await context.abort(grpc.StatusCode.NOT_FOUND, "no such service")
            return UInt32Value(value=SERVING)

    async def requests(context: Any) -> AsyncIterator[Any]:
        while True:
            async with asyncio.timeout(patience):
                request = await context.read()
            if request is grpc.aio.EOF:
                return
            yield request

    async def reflect(_requests: Any, context: Any) -> None:
        async with admit(f"/{reflection.SERVICE_NAME}/ServerReflectionInfo", context, known=True):
            try:
                async for answer in reflecting.ServerReflectionInfo(requests(context), context):
                    async with asyncio.timeout(patience):
                        await context.write(answer)
            except TimeoutError:
                await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "nothing was asked or read")

    checking = grpc.stream_unary_rpc_method_handler(
        check, response_serializer=UInt32Value.SerializeToString
    )
    telling = grpc.stream_stream_rpc_method_handler(
        reflect,
        request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
        response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    return [
        grpc.method_handlers_generic_handler(HEALTH, {"Check": checking}),
        grpc.method_handlers_generic_handler(
            reflection.SERVICE_NAME, {"ServerReflectionInfo": telling}
        ),
    ]


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
