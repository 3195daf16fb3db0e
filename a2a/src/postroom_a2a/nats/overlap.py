"""The frames of two sessions that are subscribed at the same time, while one takes over from the other.

For a queue group the server sends each message to one of the two sessions. Otherwise it sends it to both: `Overlap`
hands on the frames of the former session first, then those of the next one that the former has not brought. So it hands
on each message once, and those of one publisher in order.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable

from postroom_a2a.nats.parser import OnMessage

_Message = tuple[bytes, bytes, bytes, bytes, bytes]
"""Sid, subject, reply, header block and payload: the server sends the same bytes over both sessions."""


class Overlap:
    """Hands on, holds back or drops each frame of both sessions.

    Args:
        hand_on: takes the frames that count.
        shared: whether the subscription of a sid is in a queue group.
        size_limit: bytes that may be held back until the former session has ended; `Overlap` drops what is over it.
        dropped: called for each frame that was dropped.
    """

    def __init__(
        self,
        hand_on: OnMessage,
        *,
        shared: Callable[[bytes], bool],
        size_limit: int,
        dropped: Callable[[], None],
    ) -> None:
        self._hand_on = hand_on
        self._shared = shared
        self._left = size_limit
        self._dropped = dropped
        self._brought: Counter[_Message] = Counter()
        self._held: deque[_Message] = deque()
        self._holding = True

    def former(self, sid: bytes, subject: bytes, reply: bytes, block: bytes, data: bytes) -> None:
        """Take a frame of the former session."""
        if not self._shared(sid):
            self._brought[sid, subject, reply, block, data] += 1
        self._hand_on(sid, subject, reply, block, data)

    def next(self, sid: bytes, subject: bytes, reply: bytes, block: bytes, data: bytes) -> None:
        """Take a frame of the next session."""
        message = sid, subject, reply, block, data
        if self._shared(sid):
            self._hand_on(*message)
        elif self._holding:
            self._left -= len(block) + len(data)
            if self._left < 0:
                self._dropped()
            else:
                self._held.append(message)
        elif self._brought[message] > 0:
            self._brought[message] -= 1
        else:
            self._hand_on(*message)

    def release(self) -> None:
        """Hand on what the next session has brought, since the former one has ended."""
        self._holding = False
        held, self._held = self._held, deque()
        for message in held:
            self.next(*message)
