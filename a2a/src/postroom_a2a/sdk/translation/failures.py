"""What a client raises for the codes that the SDK has no error for; apart, for it loads the SDK's client."""

from __future__ import annotations

from typing import Any

from a2a.client.errors import A2AClientError

from postroom_a2a.rpc import Code


class UnknownCodeError(A2AClientError):
    """A peer answered with an error that A2A does not name.

    Args:
        code: of it.
        message: as it came.
        data: as it came.
    """

    def __init__(self, code: int, message: str | None = None, data: Any = None) -> None:
        super().__init__(message, data)
        self.code = code


class ServerBusyError(UnknownCodeError):
    """The agent does as much as it can: nothing was begun, try again later."""

    message = "the agent is busy"

    def __init__(self, message: str | None = None, data: Any = None) -> None:
        super().__init__(Code.SERVER_BUSY, message, data)
