"""Terminals in the sandboxes of workers: the WebSocket of a person, the two requests of a sidecar."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated

from pydantic import Field
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse

from postroom.control.http_protocol import PACED
from postroom.control.in_flight import acted_on
from postroom.control.ops.table import Answer, Operations
from postroom.control.parameters import AgentRef
from postroom.control.parts import Parts
from postroom.control.principals import itself
from postroom.control.terminals import OpenTerminal
from postroom.control.websockets import Socket
from postroom.errors import Conflict, InvalidInput, NotFound, RequestTimeout
from postroom.protocol.principal import Principal, Scope
from postroom.protocol.terminals import MAX_SIDE, check_size
from postroom_a2a import strict_json

TerminalId = Annotated[str, Field(description="The id in the record that asked for the terminal.")]

Side = Annotated[int, Field(ge=1, le=MAX_SIDE, description="Characters of that side of it.")]

FRAMES = "application/octet-stream"


operations = Operations()


@operations.get(
    "/v1/workers/{uid}/terminals/{terminal}/input",
    Scope.SEND,
    door=True,
    fails=(NotFound, Conflict),
    answers=(Answer(200, str, FRAMES, "Frames, as they come."),),
)
async def typed(
    parts: Parts, me: Principal, uid: AgentRef, terminal: TerminalId
) -> StreamingResponse:
    """Fetch what a person types in a terminal of a worker, as it is typed.

    Only the worker itself may, through its own door, and once. 404 for a terminal that nobody waits for any more.
    """
    itself(me, uid)
    found = parts.terminals.of_worker(uid, terminal)
    return StreamingResponse(found.typed_frames(), media_type=FRAMES)


@operations.post(
    "/v1/workers/{uid}/terminals/{terminal}/output",
    Scope.SEND,
    status=204,
    door=True,
    fails=(NotFound, Conflict),
    content=True,
    answers=(Answer(204, text="The terminal has ended."),),
)
async def printed(
    parts: Parts, me: Principal, uid: AgentRef, terminal: TerminalId, request: Request
) -> Response:
    """Send what a terminal of a worker prints, as it is printed.

    Only the worker itself may, through its own door, and once. The answer comes when the terminal has ended.
    """
    itself(me, uid)
    found = parts.terminals.of_worker(uid, terminal)
    request.scope[PACED] = True
    try:
        await found.take_printed(request.stream())
    except ClientDisconnect:
        found.finish("the worker has ended")
    return Response(status_code=204)


@operations.socket(
    "/v1/workers/{ref}/terminal", Scope.OPERATE, fails=(NotFound, Conflict, RequestTimeout)
)
async def terminal(
    parts: Parts, socket: Socket, ref: AgentRef, me: Principal, cols: Side = 80, rows: Side = 24
) -> None:
    """Open a terminal in the sandbox of a worker.

    Binary messages are what is typed and what is printed. A text `{"type": "resize", "cols", "rows"}` changes its
    size; the last one says how it ended: `{"type": "exit", "status"}`, or `{"type": "end", "reason"}`. There is one
    for each worker at a time: 409 says who has it.
    """
    agent, _ = await parts.workers.record(ref)
    await parts.workers.refuse_beyond(agent.uid, me.by)
    if not parts.workers.running(agent.uid):
        raise Conflict(f"@{agent.nick} does not run", remedy=f"postroom restart {agent.nick}")
    if not await parts.workers.interactive(agent.uid):
        raise Conflict(
            f"@{agent.nick} takes no terminal", remedy="give its template a [sidecar] table"
        )
    async with parts.terminals.opened(agent, me, (cols, rows)) as found:
        acted_on(worker=agent.uid, about=found.id)
        await socket.accept()
        await _join(socket, found)


async def _join(socket: Socket, terminal: OpenTerminal) -> None:
    """Pass on both ways, until the terminal has ended or the person has gone."""

    async def down() -> None:
        while True:
            message = await socket.receive()
            if isinstance(message, bytes):
                await terminal.type(message)
            else:
                await terminal.resize(*_size_in(message))

    typing = asyncio.ensure_future(down())
    printing = asyncio.ensure_future(_print(socket, terminal))
    try:
        await asyncio.wait({typing, printing}, return_when=asyncio.FIRST_COMPLETED)
        await (printing if printing.done() else typing)
    finally:
        typing.cancel()
        printing.cancel()
        await asyncio.gather(typing, printing, return_exceptions=True)


async def _print(socket: Socket, terminal: OpenTerminal) -> None:
    async for data in terminal.output():
        await socket.send_bytes(data)
    if terminal.status is not None:
        last: dict[str, object] = {"type": "exit", "status": terminal.status}
    else:
        last = {"type": "end", "reason": terminal.reason}
    await socket.send_text(json.dumps(last))


def _size_in(message: str) -> tuple[int, int]:
    try:
        said = strict_json.bounded(message.encode(), 4, 64)
        return check_size(int(said["cols"]), int(said["rows"]))
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidInput("that is no size of a terminal") from error
