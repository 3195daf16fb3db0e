"""One request and its answer, passed on in both directions at once, piece by piece.

The gateway writes the request anew, on a connection of its own. So the upstream never gets the sandbox's bytes,
whatever two readers could see in them.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import NoReturn

import h11

from postroom.errors import PeerError, PostroomError, ProtocolViolation
from postroom.gateway.http.headers import Headers, end_to_end
from postroom.gateway.http.request_record import RequestRecord
from postroom.http.connection import HttpConnection


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds that one side may keep the other waiting.

    Attributes:
        head: for the rest of a request's head, once it has begun.
        idle: for the next request of a connection.
        body: for the next piece of a request's body, and for a reader to take a piece.
        answer: for the next piece of an answer; a model may think for long before its first word.
        connect: until the upstream is open.
    """

    head: float = 15.0
    idle: float = 120.0
    body: float = 60.0
    answer: float = 900.0
    connect: float = 20.0


DEFAULT_TIMEOUTS = Timeouts()


class Exchange:
    """Passes one request to the upstream and its answer back.

    Args:
        near: the sandbox; the head of its request was read.
        far: the upstream; no request was sent to it yet.

    Attributes:
        status: of the answer; 0 until it begins.
        sent, received: bytes of the bodies.
    """

    def __init__(self, near: HttpConnection, far: HttpConnection, timeouts: Timeouts) -> None:
        self._near = near
        self._far = far
        self._timeouts = timeouts
        self.status = 0
        self.sent = 0
        self.received = 0

    async def recorded(
        self, record: RequestRecord, method: bytes, target: bytes, headers: Headers
    ) -> None:
        """Run, end the upstream's connection, and record how it ended; raises as `run`."""
        reason = ""
        try:
            await self.run(method, target, headers)
        except PostroomError as error:
            reason = error.message
            raise
        finally:
            self._far.abort()
            record.answered(self.status, self.received, reason, sent=self.sent)

    async def run(self, method: bytes, target: bytes, headers: Headers) -> None:
        """Pass the request and its whole answer.

        Raises:
            ProtocolViolation: a side does not speak HTTP/1.1.
            RequestTimeout: a side kept the other waiting for too long.
            PeerError: a side went away.
        """
        request = h11.Request(method=method, target=target, headers=headers)
        try:
            await self._far.send(request, self._timeouts.body)
            await self._both()
        except OSError as error:
            raise PeerError(f"the connection broke: {error.strerror or error}") from error

    async def _both(self) -> None:
        up = asyncio.ensure_future(self._upload())
        down = asyncio.ensure_future(self._download())
        try:
            await asyncio.wait({up, down}, return_when=asyncio.FIRST_COMPLETED)
            await (down if down.done() else up)
        finally:
            up.cancel()
            down.cancel()
            await asyncio.gather(up, down, return_exceptions=True)

    async def _upload(self) -> NoReturn:
        """Pass the request's body; then wait for the sandbox to go away, which ends the exchange."""
        near, timeouts = self._near, self._timeouts
        while True:
            match await near.next_event(timeouts.body):
                case h11.Data(data=data):
                    self.sent += len(data)
                    await self._offer(h11.Data(data=data))
                case h11.EndOfMessage():
                    await self._offer(h11.EndOfMessage())
                    break
                case _:
                    raise PeerError("the request ended too soon")
        await near.gone()
        raise PeerError("the worker did not wait for the answer")

    async def _offer(self, event: h11.Data | h11.EndOfMessage) -> None:
        try:
            await self._far.send(event, self._timeouts.body)
        except OSError:
            # It may have answered without reading on: only `_download` can tell, which has a deadline.
            await asyncio.get_running_loop().create_future()

    async def _download(self) -> None:
        near, far, timeouts = self._near, self._far, self._timeouts
        while True:
            match await far.next_event(timeouts.answer):
                case h11.InformationalResponse():
                    continue
                case h11.Response() as answer:
                    self.status = answer.status_code
                    head = h11.Response(
                        status_code=answer.status_code,
                        reason=answer.reason,
                        headers=end_to_end(answer.headers),
                    )
                    await near.send(head, timeouts.body)
                case h11.Data(data=data):
                    self.received += len(data)
                    await near.send(h11.Data(data=data), timeouts.body)
                case h11.EndOfMessage():
                    await near.send(h11.EndOfMessage(), timeouts.body)
                    return
                case _:
                    raise ProtocolViolation("the answer ended too soon")
