"""The port between a server (on a NATS subject or a socket) and the A2A agent behind it, without the SDK.

A server reads a frame, calls the operations, and writes their result into a frame of the same encoding. It knows no
type of A2A, so only the implementation of the port decides whether the SDK is loaded. Calls that come in by another way
than HTTP or NATS have a door that decides about them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from postroom_a2a.errors import PostroomError
from postroom_a2a.rpc import Id


@dataclass(slots=True)
class Call:
    """One incoming call.

    Attributes:
        id: the answer repeats it, with its type.
        method: in the caller's version of A2A: `SendMessage` (1.0) or `message/send` (0.3).
        params: a JSON value (None for none), or bytes of protobuf if `binary`.
        binary: whether the caller speaks protobuf; the results have to be in the same encoding.
        parameters: service parameters, which take the place of HTTP headers (A2A 1.0, section 3.2.6).
        caller: proven by the server; "" without proof.
        task_id: the id for the task that this call begins; "" for any. A server that may hand a call over twice
            (after a crash) gives the same id again. For a call about an existing task, operations may put its id here.
        deadline: seconds since the epoch after which nobody waits for the answer; 0 for none.
        version: of A2A that the caller itself speaks, where a front end has translated the call: what is pushed to
            the caller later goes out in it.
    """

    id: Id
    method: str
    params: Any = None
    binary: bool = False
    parameters: Mapping[str, str] = field(default_factory=dict)
    caller: str = ""
    task_id: str = ""
    deadline: float = 0.0
    version: str = "1.0"


LAST_EVENT = "Last-Event-ID"
"""Service parameter of a stream: the sequence of the last result that the caller has, to go on behind it."""


class Numbered(bytes):
    """A result of a stream with the sequence of its change, with which a caller may come back (`LAST_EVENT`).

    orjson reads only plain bytes: `bytes(result)`.
    """

    sequence: int

    @classmethod
    def of(cls, result: bytes, sequence: int) -> Numbered:
        """`result` with its sequence."""
        made = cls(result)
        made.sequence = sequence
        return made


class Operations(Protocol):
    """The operations of one agent, in the versions of A2A that it speaks."""

    def streams(self, method: str) -> bool:
        """Whether `method` answers with a stream; False for an unknown method."""

    def begins(self, method: str) -> bool:
        """Whether `method` may begin work, so that one call must not be performed twice."""

    async def answer(self, call: Call) -> bytes:
        """Perform a call that answers once.

        Returns:
            JSON text, or protobuf where `call.binary` (b"" is a message too).

        Raises:
            RpcError: the error that answers the call.
        """

    def stream(self, call: Call) -> AsyncGenerator[bytes, None]:
        """Perform a call that answers with a stream of results, each as by `answer`, and `Numbered` if it is stored.

        Closing the generator ends the stream, not its task.

        Raises:
            RpcError: the error that ends the stream.
        """


# ── calls that come in otherwise ──────────────────────────────────────────────────────────────────


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
