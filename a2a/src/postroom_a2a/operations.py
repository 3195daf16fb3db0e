"""What a door of an A2A agent (a NATS subject, a socket) needs of the agent behind it: a port without the SDK.

A door reads a frame, asks the operations, and writes what they give into a frame of the same encoding. It knows no
type of A2A, so who implements the port decides what has to be loaded.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from postroom_a2a.rpc import Id


@dataclass(slots=True)
class Call:
    """One call, as it came in.

    Attributes:
        id: that the answer repeats, with its type.
        method: as the caller's version of A2A names it: `SendMessage` (1.0) or `message/send` (0.3).
        params: the JSON value as it was sent (None where there was none), or bytes of protobuf if `binary`.
        binary: whether the caller speaks protobuf; the results have to be in the same encoding.
        parameters: service parameters, which take the place of HTTP headers (A2A 1.0, section 3.2.6).
        caller: who called, where the door has proof of that; "" where it has none.
        task_id: that a task has to get which this call begins; "" for any. A door that may hand the same call over
            twice (after a crash) gives the same id again. Where the call is about a task already, operations may put
            its id here.
        deadline: seconds since the epoch after which nobody waits for the answer; 0 for none.
    """

    id: Id
    method: str
    params: Any = None
    binary: bool = False
    parameters: Mapping[str, str] = field(default_factory=dict)
    caller: str = ""
    task_id: str = ""
    deadline: float = 0.0


class Operations(Protocol):
    """The operations of one agent, in the versions of A2A that it speaks."""

    def streams(self, method: str) -> bool:
        """Whether `method` answers with a stream; False also for a method that there is not."""

    def begins(self, method: str) -> bool:
        """Whether `method` may begin work, so that it must not be performed twice for one call."""

    async def answer(self, call: Call) -> bytes:
        """Perform a call that answers once.

        Returns:
            The result: JSON text, or protobuf where `call.binary` (b"" is a message too).

        Raises:
            RpcError: it is answered with this error.
        """

    def stream(self, call: Call) -> AsyncGenerator[bytes, None]:
        """Perform a call that answers with a stream; each result as by `answer`.

        Closing the generator ends the stream, not the task that it is about.

        Raises:
            RpcError: the stream ends with this error.
        """
