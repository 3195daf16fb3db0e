"""Operations of A2A 1.0 in JSON, by their names: what the doors of a worker ask, whoever is behind them.

Implements `postroom_a2a.operations.Operations`; a subclass says what is done under which name.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any

from postroom.errors import PostroomError
from postroom.sidecar.a2a.params import camel
from postroom_a2a.ecma_json import dumps
from postroom_a2a.limits import ConcurrencyLimit
from postroom_a2a.operations import Call
from postroom_a2a.rpc import Code, RpcError

VERSION = "1.0"

STREAMS = 32
"""Streams that one door's operations serve at a time."""

WAIT = 3600.0
"""Seconds that a call or a stream waits for its task; then it ends with the task as it is."""

BEGINNING = frozenset({"SendMessage", "SendStreamingMessage"})
STREAMING = frozenset({"SendStreamingMessage", "SubscribeToTask"})
PUSH = frozenset(
    f"{verb}TaskPushNotificationConfig{plural}"
    for verb, plural in (("Create", ""), ("Get", ""), ("List", "s"), ("Delete", ""))
)
UNSUPPORTED = frozenset({"GetExtendedAgentCard"})
"""Methods of A2A 1.0 for which the card states no capability."""

Params = dict[str, Any]
Single = Callable[[Params, Call], Awaitable[Any]]
Streaming = Callable[[Params, Call], AsyncGenerator[dict[str, Any], None]]


class Methods:
    """Operations by name.

    Args:
        single: methods that answer once.
        streaming: methods that answer with a stream of StreamResponses.
    """

    def __init__(self, single: Mapping[str, Single], streaming: Mapping[str, Streaming]) -> None:
        self._single = single
        self._streaming = streaming
        self._limit = ConcurrencyLimit(
            STREAMS,
            lambda: RpcError(Code.SERVER_BUSY, "too many streams are open; try again later"),
        )

    def streams(self, method: str) -> bool:
        """As `Operations.streams`."""
        return method in STREAMING

    def begins(self, method: str) -> bool:
        """As `Operations.begins`."""
        return method in BEGINNING

    async def answer(self, call: Call) -> bytes:
        """As `Operations.answer`."""
        params = read_params(call)
        perform = self._single.get(call.method)
        try:
            if perform is None:
                return await self.other(call)
            return dumps(await perform(params, call))
        except PostroomError as error:
            raise RpcError.of(error) from error

    async def stream(self, call: Call) -> AsyncGenerator[bytes]:
        """As `Operations.stream`."""
        params = read_params(call)
        perform = self._streaming.get(call.method)
        if perform is None:
            raise not_offered(call.method)
        with self._limit.slot():
            try:
                async with aclosing(perform(params, call)) as events:
                    async for event in events:
                        yield dumps(event)
            except PostroomError as error:
                raise RpcError.of(error) from error

    async def other(self, call: Call) -> bytes:
        """Perform a call of a method that has no name here; result as JSON text.

        Raises:
            RpcError: it is not offered.
        """
        raise not_offered(call.method)


def read_params(call: Call) -> Params:
    """The parameters of a call.

    Raises:
        RpcError: they are none, or not in an encoding or a version that is spoken here.
    """
    if call.binary:
        raise RpcError(Code.CONTENT_TYPE_NOT_SUPPORTED, "only JSON is taken here")
    said = {name.lower(): value for name, value in call.parameters.items()}.get("a2a-version")
    if said is not None and said.split(".")[:2] != VERSION.split("."):
        raise not_spoken()
    if call.params is None:
        return {}
    if not isinstance(call.params, dict):
        raise RpcError(Code.INVALID_PARAMS, "'params' has to be an object")
    return camel(call.params)


def not_spoken() -> RpcError:
    """The refusal of another version."""
    said = f"only A2A {VERSION} is spoken here: send the header A2A-Version: {VERSION}"
    return RpcError(Code.VERSION_NOT_SUPPORTED, said)


def not_offered(method: str) -> RpcError:
    """The refusal of a method."""
    if method in PUSH:
        return RpcError(Code.PUSH_NOTIFICATION_NOT_SUPPORTED, "there are no push notifications")
    if method in UNSUPPORTED | BEGINNING | STREAMING:
        return RpcError(Code.UNSUPPORTED_OPERATION, f"{method} is not offered here")
    return RpcError(Code.METHOD_NOT_FOUND, f"there is no method {method[:80]!r}")


def no_task(task: str) -> RpcError:
    """The answer about a task that there is not, or not for who asks."""
    return RpcError(Code.TASK_NOT_FOUND, "there is no such task", taskId=task)
