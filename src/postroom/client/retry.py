"""When a call is made again: capped exponential backoff with full jitter.

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
import random
from collections.abc import Callable
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and how long.

    Attributes:
        attempts: calls made in all.
        base, cap: seconds; the delay before attempt n+1 is uniform in [0, min(cap, base * 2**n)], which
            spreads the callers that one restart has cut off ("full jitter").
        uniform: source of the jitter.
    """

    attempts: int = 5
    base: float = 0.1
    cap: float = 2.0
    uniform: Callable[[float, float], float] = random.uniform

    def delay(self, failures: int) -> float:
        """Seconds to wait after so many failures in a row (1 or more)."""
        ceiling = min(self.cap, self.base * 2 ** min(failures - 1, 30))
        return self.uniform(0.0, ceiling)
