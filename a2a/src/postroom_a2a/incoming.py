"""Calls that come in by another way than HTTP or NATS, and the door that decides about them: without the SDK."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from postroom_a2a.errors import PostroomError
from postroom_a2a.operations import Operations


@dataclass(slots=True)
class Incoming:
    """A call that has come in.

    Attributes:
        method: its name in A2A 1.0.
        path: of its HTTP/2 request.
        tenant: names the agent, as its card's interface does; "" for none, and before the request was read.
        metadata: by name in lower case, without binary values; of a name that was sent twice, its last value.
        authorization: each value of that name.
        peer: IP address of the caller, "" if it has none.
    """

    method: str
    path: str
    tenant: str
    metadata: Mapping[str, str]
    authorization: Sequence[str]
    peer: str
    ended: asyncio.Future[PostroomError] = field(repr=False)

    def end(self, error: PostroomError) -> None:
        """Answer the caller with `error` at once. What the call has begun goes on, a stream does not."""
        if not self.ended.done():
            self.ended.set_result(error)


Perform = Callable[[Operations, str], Awaitable[None]]
"""Performs the call by the operations of an agent, for a proven caller ("" without proof), and answers it."""

Door = Callable[[Incoming, Perform], Awaitable[None]]
"""Decides about a call: performs it once, or raises `RpcError` or an error of `postroom_a2a.errors`."""

Greet = Callable[[Incoming], Awaitable[None]]
"""Looks at a call before its request is read, and so before its tenant is known; raises what refuses it."""
