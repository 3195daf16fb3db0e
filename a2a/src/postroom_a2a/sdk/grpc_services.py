"""What tools ask of any gRPC server: whether it serves (`grpc.health.v1`), what it speaks (`grpc.reflection.v1alpha`).

Probes have no key, so health is answered for everybody, and by nothing but one short call. A reflection is a stream
that its caller may hold open, so it is for callers whom the server greets.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

import grpc
import grpc.aio
from google.protobuf import wrappers_pb2
from google.protobuf.message import DecodeError
from grpc_reflection.v1alpha import reflection, reflection_pb2

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
