"""A caller that repeats a call while the server is busy, within the call's time (docs/binding.md, Limits)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from time import monotonic

from postroom_a2a.binding.frames import Request, Response
from postroom_a2a.live.calling import Caller, new_id
from postroom_a2a.retry import RetryPolicy
from postroom_a2a.rpc import Code

RETRY = RetryPolicy(attempts=8, base=0.1, cap=2.0)


class RetryingCaller:
    """A `Caller` over another one, which it closes. A busy server has begun nothing, so every call may be repeated."""

    def __init__(self, caller: Caller, policy: RetryPolicy = RETRY) -> None:
        self._caller = caller
        self._policy = policy

    async def call(self, request: Request, *, timeout: float) -> Response:
        """As `Caller.call`; SERVER_BUSY comes back when no time or attempt is left."""
        until, failures = monotonic() + timeout, 0
        while True:
            response = await self._caller.call(request, timeout=timeout)
            failures += 1
            if not (_busy(response) and await self._pause(failures, until)):
                return response
            request.id, timeout = new_id(), until - monotonic()

    async def stream(self, request: Request, *, timeout: float) -> AsyncGenerator[Response, None]:
        """As `Caller.stream`; SERVER_BUSY comes back when no time or attempt is left."""
        until, failures = monotonic() + timeout, 0
        while True:
            async with aclosing(self._caller.stream(request, timeout=timeout)) as responses:
                first = await anext(responses, None)
                failures += 1
                if first is None:
                    return
                if not (_busy(first) and await self._pause(failures, until)):
                    yield first
                    async for response in responses:
                        yield response
                    return
            request.id, timeout = new_id(), until - monotonic()

    async def close(self) -> None:
        """As `Caller.close`."""
        await self._caller.close()

    async def _pause(self, failures: int, until: float) -> bool:
        """Wait before the next attempt; False if no time or attempt is left."""
        pause = self._policy.delay(failures)
        left = until - monotonic()
        if failures >= self._policy.attempts or pause >= left:
            return False
        await asyncio.sleep(pause)
        return True


def _busy(response: Response) -> bool:
    return response.error is not None and response.error.code == Code.SERVER_BUSY
