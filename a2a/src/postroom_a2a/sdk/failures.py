"""What the SDK's client raises for a call over NATS that was not answered: each is the SDK's error and Postroom's, too.

A caller may catch `A2AClientTimeoutError` as over HTTP, or `RequestTimeout` as everywhere in Postroom.
"""

from __future__ import annotations

from a2a.client.errors import A2AClientError, A2AClientTimeoutError

from postroom_a2a import errors


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
