"""When a request to a receiver is tried again, and when it is given up. Pure: the database keeps what follows."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from postroom.webhooks.sender import Outcome

PAUSES = (5.0, 30.0, 300.0, 1800.0, 7200.0, 18000.0, 36000.0, 36000.0)
"""Seconds from each failed attempt to the next: nine attempts in a little more than a day."""

JITTER = 0.2
"""The part by which a pause may be longer, so that those whom one outage has cut off come back spread."""

LONGEST_REST = 3600.0
"""Seconds that a receiver may ask to be left alone."""

GONE = 410
"""The status by which a receiver says that it wants nothing more."""

REFUSING = frozenset({400, 413, 415, 422})
"""Statuses that speak of what was sent, not of the receiver."""

REFUSALS = 3
"""Attempts after which a receiver that refuses one request is believed; what comes after it goes on."""


@dataclass(frozen=True, slots=True)
class Next:
    """What follows a failed attempt.

    Attributes:
        at: instant of the next attempt; None when there is none.
        all: whether everything that waits for this receiver is given up.
    """

    at: float | None
    all: bool = False


class Schedule:
    """The pauses.

    Args:
        uniform: the source of the jitter.
    """

    def __init__(
        self,
        pauses: tuple[float, ...] = PAUSES,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._pauses = pauses
        self._uniform = uniform

    def after(self, outcome: Outcome, attempts: int, now: float) -> Next:
        """What follows a failed attempt at `now`, the `attempts`th.

        A receiver that is away for the whole schedule gets nothing of what waits: it would be tried as long for each.
        """
        if outcome.status == GONE:
            return Next(None, all=True)
        if outcome.status in REFUSING and attempts >= REFUSALS:
            return Next(None)
        if attempts > len(self._pauses):
            return Next(None, all=True)
        pause = self._pauses[attempts - 1]
        pause += self._uniform(0.0, JITTER * pause)
        return Next(now + max(pause, min(outcome.wait, LONGEST_REST)))
