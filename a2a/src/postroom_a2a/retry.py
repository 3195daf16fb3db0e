"""Back-off, and the one loop that repeats a failed call: which failures, how often, after which pauses.

Nothing here does I/O. A client gives an attempt and a way to wait to `perform_async`; what follows from an outcome is
decided here.
"""

from __future__ import annotations

import enum
import math
import random
import time
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from typing import Generic, TypeVar

from postroom_a2a.errors import BusDisconnected, PostroomError, RequestTimeout, Uncertain

UNAUTHORIZED, TOO_MANY_REQUESTS, SERVER_ERROR, UNAVAILABLE = 401, 429, 500, 503
"""HTTP statuses with a rule of their own; those from `SERVER_ERROR` on are the server's fault."""


class Again(enum.Enum):
    """Whether a failed call may be repeated."""

    ALWAYS = "the server did not act"
    IF_REPEATABLE = "the server may have acted"
    IF_MOVED = "the credential may be an old one"
    NEVER = "it would fail again"

    @classmethod
    def after(cls, status: int, *, retry_after: bool, patient: bool = False) -> Again:
        """The rule above for an HTTP error status.

        Args:
            retry_after: the response has that header.
            patient: the caller waits where it is told that it asks too often (429).
        """
        if retry_after and (status == UNAVAILABLE or (patient and status == TOO_MANY_REQUESTS)):
            return cls.ALWAYS
        if status == UNAUTHORIZED:
            return cls.IF_MOVED
        return cls.IF_REPEATABLE if status >= SERVER_ERROR else cls.NEVER


@dataclass(frozen=True, slots=True)
class Failure:
    """The error of an attempt.

    Attributes:
        sent: the server may have acted on it.
        wait: seconds that the server asked to wait before the next attempt.
    """

    error: PostroomError
    again: Again
    sent: bool = False
    wait: float = 0.0


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Number of attempts, and the pause before each.

    A failed call is repeated after an error of the network and an HTTP status of 500 or more, never after one of 400
    to 499: it would fail again.

    Attributes:
        base, cap: seconds; the delay before attempt n+1 is uniform in [0, min(cap, base * 2**n)], which
            spreads the callers that one restart has cut off ("full jitter").
        patient: after 429 with `Retry-After` wait as long as it says, if the call's deadline allows it, and try again.
    """

    attempts: int = 5
    base: float = 0.1
    cap: float = 2.0
    uniform: Callable[[float, float], float] = random.uniform
    patient: bool = False

    def delay(self, failures: int) -> float:
        """Seconds to wait after that many failures in a row (1 or more)."""
        ceiling = min(self.cap, self.base * 2 ** min(failures - 1, 30))
        return self.uniform(0.0, ceiling)


class Backoff:
    """The pauses of one loop that retries without end, as `RetryPolicy.delay` has them.

    Args:
        base: seconds of the first pause at most; each further one may be twice as long.
        cap: seconds of any pause at most.
    """

    def __init__(self, base: float, cap: float) -> None:
        self._policy = RetryPolicy(base=base, cap=cap)
        self._failures = 0

    def next(self) -> float:
        """Seconds to wait now."""
        self._failures += 1
        return self._policy.delay(self._failures)

    def reset(self) -> None:
        """Begin with short pauses again: the last attempt succeeded."""
        self._failures = 0


# ── the loop ─────────────────────────────────────────────────────────────────────────────────────────

T = TypeVar("T")

Course = Generator[float | None, T | Failure | None, T]
"""A call from beginning to end: yields None for an attempt, whose outcome it is sent, or seconds to wait."""


@dataclass(frozen=True, slots=True)
class Repeating(Generic[T]):
    """When one call is tried again.

    Attributes:
        write: the server may have done something even if no answer came.
        repeatable: a second call with the same content has no second effect.
        left: returns seconds until the call's deadline.
        moved: whether the server, or the credential for it, is another one than at the last attempt.
        paused: called with the error after each pause; what it raises ends the call.
    """

    policy: RetryPolicy
    write: bool = True
    repeatable: bool = False
    left: Callable[[], float] = lambda: math.inf
    moved: Callable[[], bool] = lambda: False
    paused: Callable[[PostroomError], None] = lambda _: None

    def course(self) -> Course[T]:
        """The course of the call.

        Raises:
            Uncertain: an attempt may have had its effect, and no later one shows it.
            PostroomError: the error of the last attempt.
        """
        failures, lost = 0, None
        while True:
            outcome = yield None
            if not isinstance(outcome, Failure):
                return outcome  # ty: ignore[invalid-explicit-return] (after None an outcome is sent)
            if self.write and outcome.sent:
                lost = lost or outcome.error
            failures += 1
            if failures >= self.policy.attempts or not self._may(outcome.again):
                raise _unknown(outcome.error, lost)
            # What the server asks for, and then its callers spread all the same.
            pause = outcome.wait + self.policy.delay(failures)
            if pause >= self.left():
                raise _unknown(outcome.error, lost)
            yield pause
            try:
                self.paused(outcome.error)
            except PostroomError as error:
                raise _unknown(error, lost) from error

    def _may(self, again: Again) -> bool:
        if again is Again.IF_MOVED:
            return self.moved()
        return again is Again.ALWAYS or (again is Again.IF_REPEATABLE and self.repeatable)


async def perform_async(
    course: Course[T],
    attempt: Callable[[], Awaitable[T | Failure]],
    sleep: Callable[[float], Awaitable[object]] | None = None,
) -> T:
    """Do a call whose attempts are awaited; `sleep` is asyncio's if not given."""
    if sleep is None:
        from asyncio import sleep  # commands that block do without asyncio
    pause = next(course)
    while True:
        outcome = None
        if pause is None:
            outcome = await attempt()
        else:
            await sleep(pause)
        try:
            pause = course.send(outcome)
        except StopIteration as end:
            return end.value


def _unknown(error: PostroomError, lost: PostroomError | None) -> PostroomError:
    """`error`, or `Uncertain` if an earlier attempt was `lost`: the server may have acted on it."""
    if (
        lost is None
        or isinstance(error, RequestTimeout)
        or type(error) is type(lost) is BusDisconnected
    ):
        return error
    later = "" if error is lost else f"; then {error.message}"
    return Uncertain(f"whether it was done is not known: {lost.message}{later}")


def retry_after(value: str, now: Callable[[], float] = time.time) -> float:
    """Seconds in a `Retry-After` header: a number, or an instant (RFC 9110, section 10.2.3); 0 for neither."""
    text = value.strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    from email.utils import parsedate_to_datetime  # few answers need it

    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - now())
    except (ValueError, TypeError, OverflowError):
        return 0.0
