"""The frames of two sessions that are subscribed at the same time, while one takes over from the other.

With a queue group the server hands each message to one of the two sessions. Without one it sends it to both: the frames
of the former session are handed on first, then those of the next one without what the former has brought too. So each
message is handed on once, and those of one publisher in its order.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable

from postroom_a2a.nats.parser import OnMessage

_Message = tuple[bytes, bytes, bytes, bytes, bytes]
"""Sid, subject, reply, header block and payload: the server sends the same bytes over both sessions."""


class Overlap:
    """Decides about each frame of both sessions.

    Args:
        hand_on: takes the frames that count.
        shared: whether a subscription, by its sid, shares its messages with others of a queue group.
        room: bytes that the next session may bring before the former has ended; what is over it is dropped.
        dropped: told of each that was dropped.
    """

    def __init__(
        self,
        hand_on: OnMessage,
        *,
        shared: Callable[[bytes], bool],
        room: int,
        dropped: Callable[[], None],
    ) -> None:
        self._hand_on = hand_on
        self._shared = shared
        self._room = room
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
            self._room -= len(block) + len(data)
            if self._room < 0:
                self._dropped()
            else:
                self._held.append(message)
        elif self._brought[message] > 0:
            self._brought[message] -= 1
        else:
            self._hand_on(*message)

    def release(self) -> None:
        """The former session brings no more: hand on what the next one has brought."""
        self._holding = False
        held, self._held = self._held, deque()
        for message in held:
            self.next(*message)
