"""How much one agent may send to another that takes mail by grants alone, or is of another organisation.

Inside an organisation, to who takes mail from everybody, other bounds count (`control.limits`, the bus).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from postroom.errors import MessageTooLarge, TooManyRequests
from postroom.protocol.rates import Rates
from postroom.settings import Settings
from postroom.store.database import Store
from postroom.store.grants import Reached

MOST_PAIRS = 32_768
"""Pairs whose rates are kept: of further ones the one that was idle longest is forgotten."""

MINUTE = 60.0

FULL = 60.0
"""Seconds after which a sender may look whether a full inbox has room again."""


SHARE = 16
"""One part in so many of a recipient's room is filled without another look: the bound is passed by no more."""


@dataclass(frozen=True, slots=True)
class PairBounds:
    """The bounds of each pair of sender and recipient; 0 for none.

    Attributes:
        messages: a minute; as many at once.
        size: bytes of the parts of one message, as JSON.
        waiting: messages of all senders that the recipient has not seen.
    """

    messages: int = 0
    size: int = 0
    waiting: int = 0

    @classmethod
    def of(cls, settings: Settings) -> PairBounds:
        """As the operator has set them."""
        return cls(settings.limit_pair, settings.limit_pair_bytes, settings.limit_waiting)


class PairLimits:
    """The limits of all pairs, of all organisations.

    Args:
        note: counts what was refused, by the name of its limit.
    """

    def __init__(
        self,
        bounds: PairBounds | None = None,
        clock: Callable[[], float] = time.monotonic,
        note: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.bounds = bounds or PairBounds()
        self._note = note
        self._clock = clock
        # To count what waits takes the longer, the more waits: so many messages are taken before it is done again.
        self._unlooked: dict[str, int] = {}
        a_second = self.bounds.messages / MINUTE
        self._rates: Rates[tuple[str, str]] = Rates(a_second, self.bounds.messages, MOST_PAIRS)

    def admit(self, store: Store, sender: str, recipient: str, size: int) -> None:
        """As `check_room` and `take`, for a recipient whose messages are in `store`."""
        self.check_room(store, recipient)
        self.take(sender, recipient, size)

    def take(self, sender: str, recipient: str, size: int) -> None:
        """Count a message from one uid to another; `size` are the bytes of what it says.

        Raises:
            MessageTooLarge: it is over the bound.
            TooManyRequests: too many have come.
        """
        if self.bounds.size and size > self.bounds.size:
            self._note("pair-size")
            raise MessageTooLarge(
                f"the message has {size:,} bytes, of which this recipient takes {self.bounds.size:,}",
                remedy="send what is large as a file (postroom send --file PATH), or in parts",
            )
        now = self._clock()
        rate = self._rates.of((sender, recipient), now)
        if not rate.covers(1.0, now):
            self._note("pair")
            wait = max(1.0, rate.wait(1.0, now))
            raise TooManyRequests(
                f"more than {self.bounds.messages} messages a minute came from you to this recipient",
                remedy=f"wait {math.ceil(wait)} s, and send one message with all instead of many",
                seconds=wait,
            )

    def check_room(self, store: Store, recipient: str) -> None:
        """Check that not too much waits for a recipient.

        Raises:
            TooManyRequests: it has to read something first.
        """
        most = self.bounds.waiting
        left = self._unlooked.pop(recipient, 0)
        if not most:
            return
        if left:
            self._unlooked[recipient] = left - 1
            return
        room = most - store.pending.waiting(recipient, most)
        if room > SHARE:
            if len(self._unlooked) >= MOST_PAIRS:
                self._unlooked.clear()
            self._unlooked[recipient] = room // SHARE - 1
        if room <= 0:
            self._note("waiting")
            raise TooManyRequests(
                f"{most:,} messages wait for this recipient, the most that may",
                remedy=f"send again when it has read some; look in {FULL:.0f} s at the earliest",
                seconds=FULL,
            )


def is_limited(org: str, to: Reached) -> bool:
    """Whether what an agent of `org` sends to `to` counts for these limits."""
    return to.grants_only or to.agent.org != org
