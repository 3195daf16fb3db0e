"""The errors of the library, in one tree with Postroom's own (`postroom.errors`).

The class says whose fault an error is, so a caller can decide without reading its text:

    PostroomError
    ├── CallerError                the caller asked for something impossible: do not retry
    │   ├── InvalidInput
    │   │   ├── InvalidName
    │   │   └── MessageTooLarge
    │   ├── NotFound
    │   ├── Conflict
    │   └── Forbidden
    │       └── Unauthorized
    ├── PeerError                  the other side broke a rule or did not answer
    │   ├── ProtocolViolation
    │   ├── NoResponders
    │   ├── RequestTimeout
    │   │   └── Uncertain
    │   └── StreamBroken
    ├── Refused                    a bound was reached: nothing was accepted, retry later
    │   ├── StreamFull
    │   └── LostUpdate
    └── EnvironmentFault           this machine or its surroundings: a person has to act
        └── BusDisconnected

`code` is stable and goes over the wire; the text is for people and may change.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

__all__ = [
    "BusDisconnected",
    "CallerError",
    "Conflict",
    "ContentNotTaken",
    "EnvironmentFault",
    "Forbidden",
    "InvalidInput",
    "InvalidName",
    "LostUpdate",
    "MessageTooLarge",
    "NoResponders",
    "NotFound",
    "PeerError",
    "PostroomError",
    "ProtocolViolation",
    "Refused",
    "RequestTimeout",
    "StreamBroken",
    "StreamFull",
    "Unauthorized",
    "Uncertain",
]


class PostroomError(Exception):
    """Base of all errors that Postroom raises on purpose.

    Args:
        message: one sentence that says what is wrong, in the user's words.
        remedy: the user's next step, "" for none known.
        details: causes, for a reader who looks further.
    """

    code: ClassVar[str] = "error"

    def __init__(self, message: str, *, remedy: str = "", details: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy
        self.details = tuple(details)

    def __str__(self) -> str:
        """The message and, if any, the remedy, on one line."""
        return f"{self.message} ({self.remedy})" if self.remedy else self.message


class CallerError(PostroomError):
    """The request itself cannot be met."""

    code = "caller-error"


class InvalidInput(CallerError):
    """A value breaks a stated rule."""

    code = "invalid-input"


class InvalidName(InvalidInput):
    """A nick, project or uid is malformed or reserved."""

    code = "invalid-name"


class MessageTooLarge(InvalidInput):
    """A message is over the size limit; it was not sent."""

    code = "message-too-large"


class ContentNotTaken(InvalidInput):
    """The recipient does not take a part of this message; nothing was sent."""

    code = "content-not-taken"


class NotFound(CallerError):
    """The thing that the request names does not exist."""

    code = "not-found"


class Conflict(CallerError):
    """The present state does not allow the request."""

    code = "conflict"


class Forbidden(CallerError):
    """The caller is known and may not do this."""

    code = "forbidden"


class Unauthorized(Forbidden):
    """The caller showed no credential, or one that is not valid."""

    code = "unauthorized"


class PeerError(PostroomError):
    """The other side of a connection broke a rule or did not answer."""

    code = "peer-error"


class ProtocolViolation(PeerError):
    """A frame, record or line breaks its protocol."""

    code = "protocol-violation"


class NoResponders(PeerError):
    """Nobody listens where a request was to go: nothing was sent."""

    code = "no-responders"


class RequestTimeout(PeerError):
    """No answer came within the deadline; the peer may have acted on the request."""

    code = "request-timeout"


class Uncertain(RequestTimeout):
    """The connection broke after the request was sent; the peer may have acted on it."""

    code = "uncertain"


class StreamBroken(PeerError):
    """A stream of answers has a gap or fell silent; an unknown part is lost."""

    code = "stream-broken"


class Refused(PostroomError):
    """A bound was reached and nothing was accepted."""

    code = "refused"


class StreamFull(Refused):
    """The stream or the recipient's inbox is full; nothing was stored and nothing was lost."""

    code = "stream-full"


class LostUpdate(Refused):
    """A write named a sequence that is no longer the last one."""

    code = "lost-update"


class EnvironmentFault(PostroomError):
    """This machine or its surroundings prevent the request; a person has to act."""

    code = "environment"


class BusDisconnected(EnvironmentFault):
    """There is no connection to the bus, and none came back within the deadline."""

    code = "bus-disconnected"
