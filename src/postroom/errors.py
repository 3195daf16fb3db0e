"""Every exception of Postroom, and the tables that turn one into an exit code or an HTTP problem.

The tree says whose fault it is, so that a caller can decide without reading texts:

    PostroomError
    ├── CallerError                the caller asked for something that cannot be: do not retry
    │   ├── InvalidInput
    │   │   ├── InvalidTemplate
    │   │   ├── InvalidName
    │   │   └── MessageTooLarge
    │   │       └── BlobTooLarge
    │   ├── NotFound
    │   │   └── UnknownRecipient
    │   ├── Conflict
    │   │   ├── NameTaken
    │   │   └── AlreadyRunning
    │   └── Forbidden
    │       ├── Unauthorized
    │       └── AddressRefused
    ├── PeerError                  the other side broke a rule or did not answer
    │   ├── ProtocolViolation
    │   ├── NoResponders
    │   ├── RequestTimeout
    │   │   └── Uncertain
    │   └── StreamBroken
    ├── Refused                    a bound was reached: nothing was accepted, retry later
    │   ├── StreamFull
    │   ├── BlobsFull
    │   └── LostUpdate
    └── EnvironmentFault           this machine or its surroundings: a person has to act
        ├── NotRunning
        ├── PortTaken
        ├── StoreLocked
        ├── StateUnwritable
        ├── ServerTooOld
        ├── ServerFailed
        ├── SandboxUnavailable
        └── BusDisconnected

`code` is stable and goes over the wire; the text is for people and may change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar


class PostroomError(Exception):
    """Base of all errors that Postroom raises on purpose.

    Args:
        message: one sentence that says what is wrong, in the user's words.
        remedy: what the user can do about it, or "" where nothing is known.
        details: what stands behind it, for who wants to know more.
    """

    code: ClassVar[str] = "error"

    def __init__(self, message: str, *, remedy: str = "", details: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy
        self.details = tuple(details)

    def __str__(self) -> str:
        """The message and, where there is one, the remedy, on one line."""
        return f"{self.message} ({self.remedy})" if self.remedy else self.message


class CallerError(PostroomError):
    """The request itself cannot be met."""

    code = "caller-error"


class InvalidInput(CallerError):
    """A value breaks a stated rule."""

    code = "invalid-input"


class InvalidTemplate(InvalidInput):
    """A worker template has an unknown key, a wrong type or a missing file."""

    code = "invalid-template"


class InvalidName(InvalidInput):
    """A nick, project or uid is malformed or reserved."""

    code = "invalid-name"


class MessageTooLarge(InvalidInput):
    """A message is over the size limit; it was not sent."""

    code = "message-too-large"


class BlobTooLarge(MessageTooLarge):
    """A blob is over the size limit; it was not stored."""

    code = "blob-too-large"


class NotFound(CallerError):
    """What the request names does not exist."""

    code = "not-found"


class UnknownRecipient(NotFound):
    """No agent has that address."""

    code = "unknown-recipient"


class Conflict(CallerError):
    """The request does not fit the present state."""

    code = "conflict"


class NameTaken(Conflict):
    """Another agent has that nick."""

    code = "name-taken"


class AlreadyRunning(Conflict):
    """It runs already."""

    code = "already-running"


class Forbidden(CallerError):
    """The caller is known and may not do this."""

    code = "forbidden"


class Unauthorized(Forbidden):
    """The caller showed no credential, or one that is not valid."""

    code = "unauthorized"


class AddressRefused(Forbidden):
    """The host has an address that nothing here may connect to."""

    code = "address-refused"


class PeerError(PostroomError):
    """The other side of a connection broke a rule or did not answer."""

    code = "peer-error"


class ProtocolViolation(PeerError):
    """A frame, record or line is not what its protocol allows."""

    code = "protocol-violation"


class NoResponders(PeerError):
    """Nobody listens on the subject of a request."""

    code = "no-responders"


class RequestTimeout(PeerError):
    """No answer came within the deadline; whether it was acted on is unknown."""

    code = "request-timeout"


class Uncertain(RequestTimeout):
    """The connection broke after the request was sent; whether it was acted on is unknown."""

    code = "uncertain"


class StreamBroken(PeerError):
    """A stream of answers has a gap or fell silent; what was lost is unknown."""

    code = "stream-broken"


class Refused(PostroomError):
    """A bound was reached and nothing was accepted."""

    code = "refused"


class StreamFull(Refused):
    """The stream or the recipient's inbox is full; nothing was stored and nothing was lost."""

    code = "stream-full"


class BlobsFull(Refused):
    """There is no room for more blobs; nothing was stored."""

    code = "blobs-full"


class LostUpdate(Refused):
    """A write named a sequence that is no longer the last one."""

    code = "lost-update"


class EnvironmentFault(PostroomError):
    """Something on this machine prevents it; a person has to act."""

    code = "environment"


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


class ServerTooOld(EnvironmentFault):
    """The nats-server found is older than the oldest that keeps our promises."""

    code = "server-too-old"


class ServerFailed(EnvironmentFault):
    """The nats-server could not be started or keeps ending."""

    code = "server-failed"


class SandboxUnavailable(EnvironmentFault):
    """The sandbox asked for cannot be had here; nothing was started without it."""

    code = "sandbox-unavailable"


class BusDisconnected(EnvironmentFault):
    """There is no connection to the bus, and none came back within the deadline."""

    code = "bus-disconnected"


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
    NotFound: 404,
    Conflict: 409,
    Forbidden: 403,
    Unauthorized: 401,
    PeerError: 502,
    RequestTimeout: 504,
    Refused: 429,
    StreamFull: 507,
    BlobsFull: 507,
    EnvironmentFault: 503,
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


def _tree(root: type[PostroomError]) -> dict[str, type[PostroomError]]:
    found = {root.code: root}
    for child in root.__subclasses__():
        if "code" in vars(child):  # else it is the same error in somebody else's family
            found |= _tree(child)
    return found


def leaves(failure: BaseException) -> Iterator[BaseException]:
    """The single errors in `failure`, which may be a group of groups."""
    if isinstance(failure, BaseExceptionGroup):
        for error in failure.exceptions:
            yield from leaves(error)
    else:
        yield failure


def problem(error: PostroomError) -> dict[str, Any]:
    """`error` as a problem document (RFC 9457, section 3).

    Shape: `{"type": "urn:postroom:error:<code>", "title", "status", "detail", "code", "remedy"?, "details"?}`.
    """
    title = (type(error).__doc__ or "").strip().splitlines()[0]
    document: dict[str, Any] = {
        "type": f"urn:postroom:error:{error.code}",
        "title": title,
        "status": http_status(error),
        "detail": error.message,
        "code": error.code,
    }
    if error.remedy:
        document["remedy"] = error.remedy
    if error.details:
        document["details"] = list(error.details)
    return document


def from_problem(document: dict[str, object], status: int) -> PostroomError:
    """The error that a problem document reports, so that a client raises what the server raised.

    An unknown code becomes the plain `PostroomError`, or `CallerError` for a 4xx status.
    """
    cls = _tree(PostroomError).get(str(document.get("code", "")))
    if cls is None:
        cls = CallerError if 400 <= status < 500 else PostroomError
    detail = str(document.get("detail") or document.get("title") or f"HTTP status {status}")
    said = document.get("details")
    details = [line for line in said if isinstance(line, str)] if isinstance(said, list) else []
    return cls(detail, remedy=str(document.get("remedy") or ""), details=details)
