"""When a call is made again; `protocol.retry` says how often, and after which pauses.

The rule (docs/api.md, Retries):

    no connection was made            again, whatever the call was: nothing reached the server
    503 with Retry-After              again: the server says that it did not act (RFC 9110, section 15.6.4)
    401                               again if the state folder names another credential by now
    connection lost, or another 5xx   again only if the call may be repeated: a read, or a write with a key
    no answer in time                 never: the caller's deadline is over
    any other 4xx                     never
"""

from __future__ import annotations

import enum
from http import HTTPStatus


class Again(enum.Enum):
    """Whether a failed call may be made again."""

    ALWAYS = "the server did not act"
    IF_REPEATABLE = "the server may have acted"
    IF_MOVED = "the credential may be an old one"
    NEVER = "it would fail again"

    @classmethod
    def after(cls, status: int, *, retry_after: bool) -> Again:
        """The rule above for an HTTP error status; `retry_after` says that the header was there."""
        if status == HTTPStatus.SERVICE_UNAVAILABLE and retry_after:
            return cls.ALWAYS
        if status == HTTPStatus.UNAUTHORIZED:
            return cls.IF_MOVED
        return cls.IF_REPEATABLE if status >= HTTPStatus.INTERNAL_SERVER_ERROR else cls.NEVER
