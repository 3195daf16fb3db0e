"""Errors of the SDK's client for calls over NATS that the SDK has no class for.

An error of a call without an answer has two bases: a caller may catch `A2AClientTimeoutError` as over HTTP, or
`RequestTimeout` as elsewhere in this library.
"""

from __future__ import annotations

from typing import Any

from a2a.client.errors import A2AClientError, A2AClientTimeoutError

from postroom_a2a import errors
from postroom_a2a.rpc import Code

__all__ = [
    "BusyConnectionError",
    "CallError",
    "CallTimeoutError",
    "DisconnectedError",
    "InvalidCallError",
    "MalformedAnswerError",
    "NoRespondersError",
    "ServerBusyError",
    "StreamBrokenError",
    "TooLargeError",
    "UnknownCodeError",
]


class CallError(A2AClientError, errors.PostroomError):
    """The call failed for a reason without a class below."""


class NoRespondersError(A2AClientError, errors.NoResponders):
    """Nobody serves the agent's subject; no agent began the call."""


class CallTimeoutError(A2AClientTimeoutError, errors.RequestTimeout):
    """No answer came in time; the agent may have acted on the call."""


class StreamBrokenError(A2AClientError, errors.StreamBroken):
    """Events of a stream were lost, or the server fell silent; the task goes on."""


class TooLargeError(A2AClientError, errors.MessageTooLarge):
    """The request exceeds the NATS server's limit and was not sent."""


class InvalidCallError(A2AClientError, errors.InvalidInput):
    """An argument of the call breaks a rule."""


class BusyConnectionError(A2AClientError, errors.Refused):
    """Too many calls wait on this connection; this one was not sent."""


class DisconnectedError(A2AClientError, errors.BusDisconnected):
    """The NATS connection takes nothing."""


class MalformedAnswerError(A2AClientError, errors.ProtocolViolation):
    """The message in place of an answer does not answer the call."""


class UnknownCodeError(A2AClientError):
    """A peer answered with an error code that A2A does not define; the attributes are as the peer sent them."""

    def __init__(self, code: int, message: str | None = None, data: Any = None) -> None:
        super().__init__(message, data)
        self.code = code


class ServerBusyError(UnknownCodeError):
    """The agent has as many calls as it takes and did not begin this one: try again later."""

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
    """The class of error that the SDK's caller expects."""
    kind = next((_OF[cls] for cls in type(error).__mro__ if cls in _OF), CallError)
    return kind(str(error))
