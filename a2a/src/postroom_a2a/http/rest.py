"""A2A over REST (HTTP+JSON; A2A 1.0, section 11, and 0.3): a path for each method."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from postroom_a2a.ecma_json import dumps
from postroom_a2a.errors import PostroomError
from postroom_a2a.http import paths, sse, v03_rest
from postroom_a2a.http.errors import headers_of, rest_status
from postroom_a2a.http.exchange import EXTENSIONS, JSON, VERSION, Exchange
from postroom_a2a.http.front import Asked, Front, read_json
from postroom_a2a.http.paths import LEGACY_PREFIX, Route
from postroom_a2a.http.versions import BLOCKING, STREAMING, V03, V10, version_of
from postroom_a2a.operations import Call, Operations
from postroom_a2a.rpc import Code, RpcError
from postroom_a2a.strict_json import loads

DOOR = "a2a+rest"

Params = dict[str, Any]


class Rest:
    """The REST binding of the agents behind `front`."""

    def __init__(self, front: Front) -> None:
        self._front = front

    async def serve(self, exchange: Exchange) -> None:
        """Answer a request; raises ClientGone."""
        try:
            caller = await self._front.admit(exchange)
            await self._call(exchange, caller)
        except (RpcError, PostroomError) as error:
            if exchange.started:
                raise
            status, document = rest_status(error)
            await exchange.answer(status, dumps(document), JSON, *headers_of(status, error))

    async def _call(self, exchange: Exchange, caller: str) -> None:
        path, legacy = _without_prefix(exchange.path)
        if not path:
            await self._unknown(exchange, ("POST",))  # JSON-RPC is there
            return
        found = paths.find("GET" if exchange.method == "HEAD" else exchange.method, path)
        if found.route is None:
            await self._unknown(exchange, found.verbs)
            return
        route, version = found.route, _version(exchange, legacy=legacy)
        params = await self._params(exchange, route, found.named, version)
        operations = await self._front.operations_of(exchange, Asked(route.method, DOOR, version))
        parameters = {**exchange.parameters(), VERSION: V10}
        call = Call(None, route.method, params, False, parameters, caller, version=version)
        if route.method in STREAMING:
            await self._stream(exchange, operations, call)
            return
        work = operations.answer(call)
        result = await (exchange.while_there(work) if route.method in BLOCKING else work)
        if version == V03:
            result = dumps(v03_rest.answer_down(route.method, loads(result)))
        await exchange.answer(200, result or b"{}", JSON)

    async def _params(
        self, exchange: Exchange, route: Route, named: Params, version: str
    ) -> Params:
        if route.verb != "POST" or exchange.method == "GET":
            query = exchange.query()
            for name in (VERSION, EXTENSIONS):
                query.pop(name, None)
            return {**paths.typed(query), **named}
        body = await exchange.body(self._front.max_body)
        said: Any = {}
        if body or "{" not in route.path:
            said = read_json(exchange, body, self._front.max_values)
        if not isinstance(said, dict):
            raise RpcError(Code.INVALID_PARAMS, "the body has to be an object")
        if version == V03 and route.method in ("SendMessage", "SendStreamingMessage"):
            return v03_rest.send_up(said)
        if version == V03 and route.method == "CreateTaskPushNotificationConfig":
            return v03_rest.push_request_up(named["taskId"], said)
        return {**said, **named}

    async def _stream(self, exchange: Exchange, operations: Operations, call: Call) -> None:
        def failed(error: Exception) -> bytes:
            if not isinstance(error, RpcError | PostroomError):
                raise error
            return dumps(rest_status(error)[1])

        write: Callable[[bytes], bytes] = _same if call.version == V10 else _down
        with self._front.streaming(exchange, call.caller):
            await sse.send(exchange, operations.stream(call), write, failed, self._front.beat)

    async def _unknown(self, exchange: Exchange, verbs: tuple[str, ...]) -> None:
        """Answer 404, or 405 for a path that takes other verbs."""
        asked = f"{exchange.method} {exchange.path[:100]}"
        error = RpcError(Code.METHOD_NOT_FOUND, f"an A2A agent has no {asked}")
        status, document = rest_status(error)
        if not verbs:
            await exchange.answer(status, dumps(document), JSON)
            return
        document["error"]["code"] = 405
        allow = ", ".join(verbs).encode()
        await exchange.answer(405, dumps(document), JSON, (b"allow", allow))


def _same(result: bytes) -> bytes:
    return result


def _down(result: bytes) -> bytes:
    return dumps(v03_rest.event_down(loads(bytes(result))))


def _without_prefix(path: str) -> tuple[str, bool]:
    """The path below the prefix of 0.3, and whether it had one."""
    legacy = path.startswith(f"{LEGACY_PREFIX}/")
    return (path.removeprefix(LEGACY_PREFIX) if legacy else path).rstrip("/"), legacy


def _version(exchange: Exchange, *, legacy: bool) -> str:
    """The version of a request.

    Raises:
        RpcError: it is not spoken here; a request without one below the paths of 1.0 is of no version.
    """
    parameters = exchange.parameters()
    if not legacy and not parameters.get(VERSION, "").strip():
        text = f"send the header {VERSION}: {V10}; without it the paths are those of {V03}, below {LEGACY_PREFIX}"
        raise RpcError(Code.VERSION_NOT_SUPPORTED, text)
    return version_of(parameters)
