"""Every exception of Postroom, and the tables that turn one into an exit code or an HTTP problem.

The library defines those that it raises too (`postroom_a2a.errors`).

The tree says whose fault it is, so that a caller can decide without reading texts:

    PostroomError
    ├── CallerError                the caller asked for something that cannot be: do not retry
    │   ├── InvalidInput
    │   │   ├── InvalidTemplate
    │   │   ├── InvalidName
    │   │   ├── MessageTooLarge
    │   │   │   └── BlobTooLarge
    │   │   └── ContentNotTaken
    │   ├── NotFound
    │   │   └── UnknownRecipient
    │   ├── Conflict
    │   │   ├── NameTaken
    │   │   └── AlreadyRunning
    │   ├── Forbidden
    │   │   ├── Unauthorized
    │   │   ├── NotLetIn
    │   │   ├── NotInvited
    │   │   ├── PinRequired
    │   │   ├── PinWrong
    │   │   └── AddressRefused
    │   ├── MalformedRequest
    │   ├── MethodNotAllowed
    │   └── HeadTooLarge
    ├── PeerError                  the other side broke a rule or did not answer
    │   ├── ProtocolViolation
    │   ├── NoResponders
    │   ├── RequestTimeout
    │   │   └── Uncertain
    │   └── StreamBroken
    ├── Refused                    a bound was reached: nothing was accepted, retry later
    │   ├── StreamFull
    │   ├── BlobsFull
    │   ├── PinPaused
    │   ├── TooManyRequests
    │   └── LostUpdate
    └── EnvironmentFault           this machine or its surroundings: a person has to act
        ├── NotRunning
        ├── PortTaken
        ├── StoreLocked
        ├── StateUnwritable
        ├── DatabaseAway
        │   ├── DatabaseBusy
        │   └── DatabaseRefuses
        ├── NotShownYet
        ├── MessageAltered
        ├── ServerTooOld
        ├── ServerFailed
        │   └── ServersBehind
        ├── SandboxUnavailable
        └── BusDisconnected

`code` is stable and goes over the wire; the text is for people and may change.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from postroom_a2a.errors import (
    BusDisconnected,
    CallerError,
    Conflict,
    ContentNotTaken,
    EnvironmentFault,
    Forbidden,
    InvalidInput,
    InvalidName,
    LostUpdate,
    MessageTooLarge,
    NoResponders,
    NotFound,
    PeerError,
    PostroomError,
    ProtocolViolation,
    Refused,
    RequestTimeout,
    StreamBroken,
    StreamFull,
    Unauthorized,
    Uncertain,
)

__all__ = [
    "EXIT_CODES",
    "HTTP_STATUS",
    "AddressRefused",
    "AlreadyRunning",
    "BlobTooLarge",
    "BlobsFull",
    "BusDisconnected",
    "CallerError",
    "Conflict",
    "ContentNotTaken",
    "DatabaseAway",
    "DatabaseBusy",
    "DatabaseRefuses",
    "EnvironmentFault",
    "Forbidden",
    "HeadTooLarge",
    "InvalidInput",
    "InvalidName",
    "InvalidTemplate",
    "LostUpdate",
    "MalformedRequest",
    "MessageAltered",
    "MessageTooLarge",
    "MethodNotAllowed",
    "NameTaken",
    "NoResponders",
    "NotFound",
    "NotInvited",
    "NotLetIn",
    "NotRunning",
    "NotShownYet",
    "PeerError",
    "PinPaused",
    "PinRequired",
    "PinWrong",
    "PortTaken",
    "PostroomError",
    "ProtocolViolation",
    "Refused",
    "RequestTimeout",
    "SandboxUnavailable",
    "ServerFailed",
    "ServerTooOld",
    "ServersBehind",
    "StateUnwritable",
    "StoreLocked",
    "StreamBroken",
    "StreamFull",
    "TooManyRequests",
    "Unauthorized",
    "Uncertain",
    "UnknownRecipient",
    "by_code",
    "exit_code",
    "from_problem",
    "http_status",
    "leaves",
    "problem",
    "retry_after",
]


class InvalidTemplate(InvalidInput):
    """A worker template has an unknown key, a wrong type or a missing file."""

    code = "invalid-template"


class BlobTooLarge(MessageTooLarge):
    """A blob is over the size limit; it was not stored."""

    code = "blob-too-large"


class UnknownRecipient(NotFound):
    """No agent has that address."""

    code = "unknown-recipient"


class NameTaken(Conflict):
    """Another agent has that nick."""

    code = "name-taken"


class AlreadyRunning(Conflict):
    """It runs already."""

    code = "already-running"


class NotLetIn(Forbidden):
    """There is no such agent, or it has not let the caller in: which of both, nobody is told."""

    code = "not-let-in"


class NotInvited(Forbidden):
    """Nobody joins so: the invite or its code does not count, or the organisation takes nobody without one."""

    code = "not-invited"


class PinRequired(Forbidden):
    """The caller has set a PIN, and none was given."""

    code = "pin-required"


class PinWrong(Forbidden):
    """Another PIN was given than the one that the caller has set."""

    code = "pin-wrong"


class AddressRefused(Forbidden):
    """The host resolves to an address that Postroom never connects to."""

    code = "address-refused"


class MalformedRequest(CallerError):
    """The request is not HTTP, or not what its headers promise."""

    code = "malformed-request"


class MethodNotAllowed(CallerError):
    """The path exists, but not for this method."""

    code = "method-not-allowed"


class HeadTooLarge(CallerError):
    """The head of the request is over its limit."""

    code = "head-too-large"


class BlobsFull(Refused):
    """There is no room for more blobs; nothing was stored."""

    code = "blobs-full"


class PinPaused(Refused):
    """Too many wrong PINs were given; for a while no try is taken."""

    code = "pin-paused"


class TooManyRequests(Refused):
    """The caller asks faster than its limit; nothing of the request was done.

    Args:
        seconds: until a further request would be taken.
    """

    code = "too-many-requests"

    def __init__(
        self,
        message: str,
        *,
        remedy: str = "",
        details: Sequence[str] = (),
        seconds: float = 1.0,
    ) -> None:
        super().__init__(message, remedy=remedy, details=details)
        self.seconds = seconds


class NotRunning(EnvironmentFault):
    """No post room answers at the address in the state folder."""

    code = "not-running"


class PortTaken(EnvironmentFault):
    """Another process listens on the wanted port."""

    code = "port-taken"


class StoreLocked(EnvironmentFault):
    """Another post room has the state folder open."""

    code = "store-locked"


class StateUnwritable(EnvironmentFault):
    """The state folder cannot be written."""

    code = "state-unwritable"


class DatabaseAway(EnvironmentFault):
    """The database on another server does not answer, or does not let us in."""

    code = "database-away"


class DatabaseBusy(DatabaseAway):
    """The same for now: too many calls wait for it. It is no `Refused`, since what the call is about may be stored."""

    code = "database-busy"


class DatabaseRefuses(DatabaseAway):
    """The same, for a reason that no waiting mends: another user, password or name is wanted."""

    code = "database-refuses"


class NotShownYet(EnvironmentFault):
    """It is stored, and the post room cannot show it yet."""

    code = "not-shown-yet"


class MessageAltered(EnvironmentFault):
    """The message is not as it was stored: somebody has changed it in the database."""

    code = "message-altered"


class ServerTooOld(EnvironmentFault):
    """The nats-server is older than the oldest version that keeps our promises."""

    code = "server-too-old"


class ServerFailed(EnvironmentFault):
    """The nats-server could not be started, or keeps ending."""

    code = "server-failed"


class ServersBehind(ServerFailed):
    """Some servers of a cluster lack the present accounts; the others have them."""

    code = "servers-behind"


class SandboxUnavailable(EnvironmentFault):
    """The requested sandbox is not available on this machine; nothing was started without it."""

    code = "sandbox-unavailable"


# The most specific class listed wins (see `exit_code` and `http_status`).
EXIT_CODES: dict[type[PostroomError], int] = {
    PostroomError: 1,
    InvalidInput: 2,
    NotRunning: 3,
    NotFound: 4,
    Conflict: 5,
    Forbidden: 6,
    Refused: 7,
    PeerError: 8,
    RequestTimeout: 9,
    EnvironmentFault: 10,
}
"""Exit codes of the command line; 0 is success, 130 an interrupt by Ctrl-C."""

HTTP_STATUS: dict[type[PostroomError], int] = {
    PostroomError: 500,
    CallerError: 400,
    InvalidInput: 422,
    MessageTooLarge: 413,
    ContentNotTaken: 415,
    NotFound: 404,
    Conflict: 409,
    MalformedRequest: 400,
    MethodNotAllowed: 405,
    HeadTooLarge: 431,
    Forbidden: 403,
    Unauthorized: 401,
    PeerError: 502,
    RequestTimeout: 504,
    Refused: 429,
    StreamFull: 507,
    BlobsFull: 507,
    EnvironmentFault: 503,
    MessageAltered: 500,
}
"""HTTP status of a problem document (RFC 9457) for each error."""


def _nearest(table: dict[type[PostroomError], int], kind: type[PostroomError]) -> int:
    for cls in kind.__mro__:
        if issubclass(cls, PostroomError) and cls in table:
            return table[cls]
    raise KeyError(kind)


def exit_code(error: PostroomError) -> int:
    """The exit status of a command that ended with `error`."""
    return _nearest(EXIT_CODES, type(error))


def http_status(error: PostroomError) -> int:
    """The HTTP status of a response that reports `error`."""
    return _nearest(HTTP_STATUS, type(error))


AGAIN = frozenset({429, 503, 507})
"""HTTP statuses of refusals that pass: they come with `Retry-After`."""


def retry_after(error: PostroomError) -> int | None:
    """The seconds of the header `Retry-After` for `error`, rounded up; None without that header."""
    if http_status(error) not in AGAIN:
        return None
    return math.ceil(error.seconds) if isinstance(error, TooManyRequests) else 1


def by_code(root: type[PostroomError] = PostroomError) -> dict[str, type[PostroomError]]:
    """Every error below `root`, by its code."""
    found = {root.code: root}
    for child in root.__subclasses__():
        if "code" in vars(child):  # otherwise the same error in a family of other errors
            found |= by_code(child)
    return found


def leaves(failure: BaseException) -> Iterator[BaseException]:
    """The single errors in `failure`, which may be a group of groups."""
    if isinstance(failure, BaseExceptionGroup):
        for error in failure.exceptions:
            yield from leaves(error)
    else:
        yield failure


PROBLEM_TYPE = "application/problem+json"
"""Media type of a problem document."""


def problem(error: PostroomError) -> dict[str, Any]:
    """`error` as a problem document (RFC 9457, section 3).

    Its shape is `protocol.shapes.Problem`; `type` is `urn:postroom:error:<code>`.
    """
    title = (type(error).__doc__ or "").strip().splitlines()[0]
    document: dict[str, Any] = {
        "type": f"urn:postroom:error:{error.code}",
        "title": title,
        "status": http_status(error),
        "detail": error.message,
        "code": error.code,
        "remedy": error.remedy,
    }
    if error.details:
        document["details"] = list(error.details)
    return document


def from_problem(document: dict[str, object], status: int) -> PostroomError:
    """The error that a problem document reports, so that a client raises what the server raised.

    An unknown code becomes the plain `PostroomError`, or `CallerError` for a 4xx status.
    """
    cls = by_code().get(str(document.get("code", "")))
    if cls is None:
        cls = CallerError if 400 <= status < 500 else PostroomError
    detail = str(document.get("detail") or document.get("title") or f"HTTP status {status}")
    said = document.get("details")
    details = [line for line in said if isinstance(line, str)] if isinstance(said, list) else []
    return cls(detail, remedy=str(document.get("remedy") or ""), details=details)
