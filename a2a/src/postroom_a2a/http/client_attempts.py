"""The attempts of the A2A client's calls: how servers are called, and what a failed attempt means."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field
from typing import Any

from postroom_a2a.errors import (
    NoResponders,
    PeerError,
    PostroomError,
    ProtocolViolation,
    RequestTimeout,
)
from postroom_a2a.http import client_wire as wire
from postroom_a2a.http.client_port import HttpExchange, HttpReply, HttpRequest
from postroom_a2a.retry import Again, Failure, Repeating, RetryPolicy, perform_async
from postroom_a2a.rpc import Code, RpcError

Params = dict[str, Any]

TIMEOUT = 60.0
"""Seconds of a call by default, its repetitions included."""

SILENCE = 90.0
"""Seconds without a byte after which a stream counts as broken: servers send a comment every 15 s or so."""

Headers = Callable[[str], Mapping[str, str]]
"""The headers that a request to a URL has beside those of A2A, such as a credential."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The most bytes of an answer, of one event of a stream, and of a card."""

    answer: int = 8 * 1024 * 1024
    event: int = 2 * 1024 * 1024
    card: int = 256 * 1024


@dataclass(frozen=True, slots=True)
class Calling:
    """How servers are called.

    Attributes:
        exchange: does one exchange over HTTP.
        headers: of each request; a credential must be given to the host that it is for and to no other.
        silence: seconds without a byte of a stream that end it.
    """

    exchange: HttpExchange
    headers: Headers = lambda _: {}
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    bounds: Bounds = field(default_factory=Bounds)
    silence: float = SILENCE


class Attempts:
    """The attempts of one call, or of the calls that share its time.

    Where a method takes `write` and `repeatable`, they are those of `Repeating`.
    """

    def __init__(self, calling: Calling, timeout: float) -> None:
        self._calling = calling
        self._timeout = timeout
        self._end = asyncio.get_running_loop().time() + timeout

    def left(self) -> float:
        """Seconds that are left."""
        return max(0.0, self._end - asyncio.get_running_loop().time())

    async def result(
        self,
        request: HttpRequest,
        read: Callable[[bytes], Params],
        *,
        write: bool,
        repeatable: bool = True,
    ) -> Params:
        """What `read` makes of the body of the answer."""

        async def attempt() -> Params | Failure:
            try:
                async with self._calling.exchange(request) as reply:
                    body = await whole_of(reply, self._calling.bounds.answer)
                    if reply.status >= 300:
                        return wire.refusal_of(
                            reply.status, reply.headers, body, self._calling.retry
                        )
                    return read(body)
            except RpcError as error:
                busy = error.code == Code.SERVER_BUSY
                return Failure(wire.typed(error), Again.ALWAYS if busy else Again.NEVER)
            except PostroomError as error:
                return _failed(error)

        return await self._perform(attempt, write=write, repeatable=repeatable)

    async def whole(
        self, request: HttpRequest, most: int, missing: tuple[int, ...]
    ) -> bytes | None:
        """The body of the answer; None for one of the statuses `missing`."""

        async def attempt() -> bytes | Failure | None:
            try:
                async with self._calling.exchange(request) as reply:
                    if reply.status in missing:
                        return None
                    body = await whole_of(reply, most)
                    if reply.status >= 300:
                        return wire.refusal_of(
                            reply.status, reply.headers, body, self._calling.retry
                        )
                    return body
            except PostroomError as error:
                return _failed(error)

        return await self._perform(attempt, write=False)

    async def opened(
        self,
        request: HttpRequest,
        stack: AsyncExitStack,
        *,
        write: bool,
        repeatable: bool = True,
    ) -> HttpReply:
        """The answer after its head; `stack` ends it."""

        async def attempt() -> HttpReply | Failure:
            async with AsyncExitStack() as opening:
                try:
                    reply = await opening.enter_async_context(self._calling.exchange(request))
                    if reply.status >= 300:
                        body = await whole_of(reply, self._calling.bounds.answer)
                        return wire.refusal_of(
                            reply.status, reply.headers, body, self._calling.retry
                        )
                except PostroomError as error:
                    return _failed(error)
                stack.push_async_exit(opening.pop_all())
                return reply

        return await self._perform(attempt, write=write, repeatable=repeatable)

    async def _perform(self, attempt: Any, *, write: bool, repeatable: bool = True) -> Any:
        rules: Repeating[Any] = Repeating(
            self._calling.retry, write=write, repeatable=repeatable, left=self.left
        )
        try:
            async with asyncio.timeout_at(self._end):
                return await perform_async(rules.course(), attempt)
        except TimeoutError as error:
            raise RequestTimeout(f"the agent did not answer within {self._timeout:g} s") from error


def _failed(error: PostroomError) -> Failure:
    """The failure of an attempt that has brought no answer."""
    if isinstance(error, NoResponders):
        return Failure(error, Again.ALWAYS)
    if isinstance(error, PeerError) and not isinstance(error, (RequestTimeout, ProtocolViolation)):
        return Failure(error, Again.IF_REPEATABLE, sent=True)
    return Failure(error, Again.NEVER)


async def whole_of(reply: HttpReply, most: int) -> bytes:
    """The body of an answer; raises ProtocolViolation if it is over `most` bytes."""
    body = bytearray()
    async with aclosing(reply.pieces()) as pieces:
        async for piece in pieces:
            body += piece
            if len(body) > most:
                raise ProtocolViolation(f"the answer is over {most} bytes")
    return bytes(body)
