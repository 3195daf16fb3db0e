"""What a call is answered with that a process began and did not end: its task, ended, where the agent knows it."""

from __future__ import annotations

from postroom.a2a.nats.durable.jobs import lost_error
from postroom.a2a.operations import Call, Operations
from postroom.a2a.rpc import Code, RpcError

_TASK_FIELD = b"\x0a"  # `task` is field 1 of SendMessageResponse and of StreamResponse


class EndLostTask:
    """Cancels the task of a lost call, so that nobody waits for it, and answers with the task as it then is.

    Where the agent does not know the task, the call is answered with an error.

    Args:
        operations: of the agent.
    """

    def __init__(self, operations: Operations) -> None:
        self._operations = operations

    async def __call__(self, call: Call) -> bytes | RpcError:
        """The result or the error of `call`."""
        legacy = "/" in call.method
        try:
            try:
                task = await self._ask("tasks/cancel" if legacy else "CancelTask", call)
            except RpcError as error:
                if error.code != Code.TASK_NOT_CANCELABLE:
                    raise
                task = await self._ask("tasks/get" if legacy else "GetTask", call)
        except RpcError:
            return lost_error(call)
        if legacy:
            return task
        if call.binary:
            return _TASK_FIELD + _varint(len(task)) + task
        return b'{"task":' + task + b"}"

    async def _ask(self, method: str, call: Call) -> bytes:
        params = {"id": call.task_id}
        if call.binary:
            name = call.task_id.encode()
            about = b"\x12" + _varint(len(name)) + name  # `id` of both requests
            return await self._operations.answer(self._like(call, method, about))
        return await self._operations.answer(self._like(call, method, params))

    @staticmethod
    def _like(call: Call, method: str, params: object) -> Call:
        return Call(call.id, method, params, call.binary, call.parameters, call.caller)


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
