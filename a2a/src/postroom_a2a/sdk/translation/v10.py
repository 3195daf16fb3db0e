"""A2A 1.0 in JSON: ProtoJSON, as the SDK's JSON-RPC dispatcher writes it."""

from __future__ import annotations

from typing import Any

from google.protobuf.message import Message as Proto

from a2a import types
from postroom_a2a.ecma_json import dumps
from postroom_a2a.errors import ProtocolViolation
from postroom_a2a.rpc import Code, RpcError
from postroom_a2a.sdk.translation import protojson
from postroom_a2a.sdk.translation.table import Operation
from postroom_a2a.sdk.translation.values import DEPTH, UNREADABLE, plain, reason


class Dialect10:
    """A2A 1.0; readers ignore unknown members."""

    version = "1.0"

    def method(self, operation: Operation) -> str:
        """The operation's name."""
        return operation.name

    def write_params(self, operation: Operation, request: Proto) -> dict[str, Any]:  # noqa: ARG002 (the port's)
        """The request as ProtoJSON."""
        return plain(request)

    def params_text(self, operation: Operation, request: Proto) -> bytes:  # noqa: ARG002 (the port's)
        """The request as ProtoJSON text."""
        return protojson.write(request)

    def read_params(self, operation: Operation, value: Any) -> Proto:
        """The request in ProtoJSON.

        Raises:
            RpcError: INVALID_PARAMS, if the value is not such a request.
        """
        if value is None and operation.bare:
            return operation.request()
        if not isinstance(value, dict):
            raise RpcError(Code.INVALID_PARAMS, "'params' has to be an object")
        try:
            return protojson.read(value, operation.request, depth=DEPTH)
        except UNREADABLE as error:
            raise RpcError(Code.INVALID_PARAMS, f"'params': {reason(error)}") from error

    def write_result(
        self,
        operation: Operation,
        message: Proto | None,
        request: Proto | None = None,
    ) -> dict[str, Any] | None:
        """The message as ProtoJSON; a page of tasks has its empty members too, as the specification wants."""
        if operation.result is None or message is None:
            return None
        if not isinstance(message, types.ListTasksResponse):
            return plain(message)
        page = plain(message, always_print_fields_with_no_presence=True)
        if isinstance(request, types.ListTasksRequest) and not request.include_artifacts:
            for task in page["tasks"]:
                del task["artifacts"]
        return page

    def result_text(
        self,
        operation: Operation,
        message: Proto | None,
        request: Proto | None = None,
    ) -> bytes:
        """As `write_result`, as text."""
        if message is None or isinstance(message, types.ListTasksResponse):
            return dumps(self.write_result(operation, message, request))
        return b"null" if operation.result is None else protojson.write(message)

    def read_result(self, operation: Operation, value: Any) -> Any:
        """The message in ProtoJSON.

        Raises:
            ProtocolViolation: `value` is not such a message.
        """
        if operation.result is None:
            return None
        if not isinstance(value, dict):
            raise ProtocolViolation(f"the result of {operation.name} is no object")
        try:
            message = protojson.read(value, operation.result, depth=_ANSWER_DEPTH)
        except UNREADABLE as error:
            raise ProtocolViolation(f"the result of {operation.name}: {reason(error)}") from error
        if operation.result in _HOLDERS and message.WhichOneof("payload") is None:
            raise ProtocolViolation(f"the result of {operation.name} holds nothing")
        return message


_ANSWER_DEPTH = 100
"""How deep protobuf's reader goes into an answer: as deep as it does by itself."""

_HOLDERS = frozenset({types.SendMessageResponse, types.StreamResponse})

V10 = Dialect10()
