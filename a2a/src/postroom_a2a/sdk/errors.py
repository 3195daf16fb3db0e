"""What the SDK's client raises for a call over NATS, where the SDK has no error for it.

The errors of a call that was not answered are of the SDK's kind and of ours: a caller may catch
`A2AClientTimeoutError` as over HTTP, or `RequestTimeout` as everywhere in this library.
"""

from __future__ import annotations

from typing import Any

from a2a.client.errors import A2AClientError, A2AClientTimeoutError

from postroom_a2a import errors
from postroom_a2a.rpc import Code


class CallError(A2AClientError, errors.PostroomError):
    """The call failed for a reason that has no class of its own here."""


class NoRespondersError(A2AClientError, errors.NoResponders):
    """Nobody serves the agent's subject; nothing was begun."""


class CallTimeoutError(A2AClientTimeoutError, errors.RequestTimeout):
    """No answer came in time; it may have been acted on."""


class StreamBrokenError(A2AClientError, errors.StreamBroken):
    """Events of a stream were lost, or the server fell silent; the task goes on."""


class TooLargeError(A2AClientError, errors.MessageTooLarge):
    """The request is over the NATS server's limit; nothing was sent."""


class InvalidCallError(A2AClientError, errors.InvalidInput):
    """The call cannot be made as it was asked for."""


class BusyConnectionError(A2AClientError, errors.Refused):
    """Too many calls wait on this connection; nothing was sent."""


class DisconnectedError(A2AClientError, errors.BusDisconnected):
    """The NATS connection takes nothing."""


class MalformedAnswerError(A2AClientError, errors.ProtocolViolation):
    """What came is no answer to the call."""


class UnknownCodeError(A2AClientError):
    """A peer answered with an error code that A2A does not name; code, message and data are as they came."""

    def __init__(self, code: int, message: str | None = None, data: Any = None) -> None:
        super().__init__(message, data)
        self.code = code


class ServerBusyError(UnknownCodeError):
    """The agent has as many calls as it takes: nothing was begun, try again later."""

    message = "the agent is busy"

    def __init__(self, message: str | None = None, data: Any = None) -> None:
        super().__init__(Code.SERVER_BUSY, message, data)


_OF: dict[type, type[A2AClientError]] = {
    errors.NoResponders: NoRespondersError,
    errors.RequestTimeout: CallTimeoutError,
    errors.StreamBroken: StreamBrokenError,
    errors.MessageTooLarge: TooLargeError,
    errors.InvalidInput: InvalidCallError,
    errors.Refused: BusyConnectionError,
    errors.BusDisconnected: DisconnectedError,
    errors.ProtocolViolation: MalformedAnswerError,
}


def client_error(error: errors.PostroomError) -> A2AClientError:
    """`error` as the SDK's caller expects it."""
    kind = next((_OF[cls] for cls in type(error).__mro__ if cls in _OF), CallError)
    return kind(str(error))
