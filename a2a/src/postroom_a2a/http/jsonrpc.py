"""A2A over JSON-RPC (A2A 1.0, section 9, and 0.3): one address for all methods."""

from __future__ import annotations

from postroom_a2a.ecma_json import dumps
from postroom_a2a.errors import PostroomError
from postroom_a2a.http import v03
from postroom_a2a.http.errors import (
    BLOCKING,
    LEGACY,
    METHODS,
    STREAMING,
    V03,
    V10,
    headers_of,
    refused,
    status_of,
    version_of,
)
from postroom_a2a.http.exchange import VERSION, Asked, Exchange, Front, read_json, send_events
from postroom_a2a.operations import Call, Operations
from postroom_a2a.rpc import Code, Id, RpcError, id_of, read_call, refusal
from postroom_a2a.strict_json import loads

DOOR = "a2a+jsonrpc"


class JsonRpc:
    """The JSON-RPC binding of the agents behind `front`."""

    def __init__(self, front: Front) -> None:
        self._front = front

    async def serve(self, exchange: Exchange) -> None:
        """Answer a POST; raises ClientGone."""
        try:
            caller = await self._front.admit(exchange)
            body = await exchange.body(self._front.max_body)
        except PostroomError as error:
            await self._refuse(exchange, None, error)
            return
        call_id: Id = None
        try:
            record = read_json(exchange, body, self._front.max_values)
            call_id = id_of(record)
            await self._call(exchange, call_id, record, caller)
        except PostroomError as error:
            await self._refuse(exchange, call_id, error)
        except RpcError as error:
            if exchange.started:
                raise
            # What is wrong with a call is said with 200 (A2A 1.0, section 9); what is away behind the server is not.
            status = 200 if error.fault is None else status_of(error)[0]
            body, headers = dumps(refusal(call_id, error)), headers_of(status, error)
            await exchange.answer(status, body, b"application/json", *headers)

    async def _call(self, exchange: Exchange, call_id: Id, record: object, caller: str) -> None:
        method, params = read_call(record)
        parameters = exchange.parameters()
        version = version_of(parameters)
        named = _method(method, version)
        try:
            if version == V03:
                params = v03.request_up(named, params)
            asked = Asked(named, DOOR, version)
            operations = await self._front.operations_of(exchange, asked)
            parameters[VERSION] = V10
            call = Call(call_id, named, params, False, parameters, caller, version=version)
            if named in STREAMING:
                await self._stream(exchange, operations, call)
                return
            work = operations.answer(call)
            result = await (exchange.while_there(work) if named in BLOCKING else work)
        except RpcError as error:
            error.plain = version == V03
            raise
        if version == V03:
            result = dumps(v03.answer_down(named, loads(result or b"null")))
        await exchange.answer(200, b"%b%b}" % (_head(call_id), result or b"null"))

    async def _stream(self, exchange: Exchange, operations: Operations, call: Call) -> None:
        head, legacy = _head(call.id), call.version == V03

        def write(result: bytes) -> bytes:
            if legacy:
                result = dumps(v03.event_down(loads(bytes(result))))
            return b"%b%b}" % (head, result)

        def failed(error: Exception) -> bytes:
            if isinstance(error, PostroomError):
                error = RpcError.of(error)
            if not isinstance(error, RpcError):
                raise error
            error.plain = legacy
            return dumps(refusal(call.id, error))

        with self._front.streaming(exchange, call.caller):
            await send_events(exchange, operations.stream(call), write, failed, self._front.beat)

    async def _refuse(self, exchange: Exchange, call_id: Id, error: PostroomError) -> None:
        status, _ = status_of(error)
        body = dumps(refusal(call_id, refused(error)))
        await exchange.answer(status, body, b"application/json", *headers_of(status, error))


def _head(call_id: Id) -> bytes:
    return b'{"jsonrpc":"2.0","id":%b,"result":' % dumps(call_id)


def _method(method: str, version: str) -> str:
    """The method of A2A 1.0 that a call means.

    Raises:
        RpcError: this version has no such method.
    """
    if version == V10 and method in METHODS:
        return method
    if version == V03 and method in LEGACY:
        return LEGACY[method]
    if version == V03 and method in METHODS:
        text = f"{method} is of A2A {V10}: send the header {VERSION}: {V10}"
        raise RpcError(Code.VERSION_NOT_SUPPORTED, text)
    raise RpcError(Code.METHOD_NOT_FOUND, f"A2A {version} has no method {method[:80]!r}")
