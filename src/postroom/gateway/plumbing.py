"""Frames that only keep a connection to the bus alive: counted, not listed (docs/security.md, The audit log).

A line precedes the first such frame and covers what follows for a while. The next line says exactly how much that was.
So every byte has a line before it, also after a kill.
"""

from __future__ import annotations

from typing import Any

WINDOW = 60.0
MOST_FRAMES = 1000
MOST_BYTES = 1024 * 1024
"""Seconds, frames and bytes that one line covers at most."""

LARGEST = 8 * 1024
"""Bytes of a frame that may be counted; a larger one has a line of its own."""

BEAT, PULL, ANSWER = "beats", "pulls", "answers"
"""Kinds: signs of life of the worker and of its work; requests for messages; what the bus answers."""


class Plumbing:
    """The plumbing of one connection since its last line."""

    def __init__(self) -> None:
        self.frames = self.bytes = 0
        self._counts: dict[str, list[int]] = {}
        self._until = float("-inf")

    def covered(self, now: float, size: int) -> bool:
        """Whether the last line covers a frame of `size` bytes at `now`."""
        return (
            self._until - WINDOW <= now < self._until
            and self.frames < MOST_FRAMES
            and self.bytes + size <= MOST_BYTES
        )

    def line(self, now: float = 0.0) -> dict[str, Any]:
        """The fields of a record of what passed since the last one. With `now`, the line also covers what follows."""
        said = [f"{count} {kind} {size} B" for kind, (count, size) in self._counts.items()]
        if now:
            said.append(f"beats, pulls and answers of up to {WINDOW:.0f} s follow")
        fields = {"count": self.frames, "size": self.bytes, "reason": "; ".join(said)}
        self.frames = self.bytes = 0
        self._counts = {}
        self._until = now + WINDOW if now else float("-inf")
        return fields

    def count(self, kind: str, size: int) -> None:
        """Count a frame that passes."""
        self.frames += 1
        self.bytes += size
        counted = self._counts.setdefault(kind, [0, 0])
        counted[0] += 1
        counted[1] += size
