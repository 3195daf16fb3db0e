"""The optional NATS headers of this binding. Pure.

None changes a frame, so a peer may ignore them all (docs/binding.md, Extensions in headers).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

DEADLINE = "A2A-Deadline"
"""Of a request: milliseconds since the epoch after which nobody waits for the answer."""

STREAM = "A2A-Stream"
"""Of a request for a stream: the client's `Flow`. Without it a server sends only frames."""

SEQUENCE = "A2A-Sequence"
"""Of each frame of a stream: 1, 2, 3, ... A gap means that a frame was lost."""

BEAT = "A2A-Beat"
"""Of an empty message in a stream, the server's heartbeat to a client that sent `STREAM`. Value: the last sequence."""

LANE = "A2A-Lane"
"""Of a stored response: the server's subject for calls that overtake others (get, cancel, ...)."""

CONTENT = "urn:postroom:a2a:large-content:1"
"""Extension (service parameter `A2A-Extensions`): the client can fetch parts by reference."""

MAX_INSTANT = 2**53
"""Milliseconds since the epoch; a later deadline counts as no deadline."""


@dataclass(frozen=True, slots=True)
class Flow:
    """A client's flow control for a stream.

    Attributes:
        window: most unacknowledged frames; 0 for any number.
        beat: seconds between the server's heartbeats; 0 for none.
    """

    window: int = 0
    beat: float = 0.0

    def header(self) -> str:
        """The value of the header `STREAM`: `window=32;beat=10`."""
        return f"window={self.window};beat={self.beat:g}"

    @classmethod
    def read(cls, value: str) -> Flow:
        """The flow in a header; an unreadable part counts as absent."""
        said = dict(part.strip().partition("=")[::2] for part in value.split(";"))
        return cls(int(_number(said.get("window", ""))), _number(said.get("beat", "")))


def deadline_of(headers: Mapping[str, str] | None) -> float:
    """The deadline of a request, seconds since the epoch; 0 for none."""
    return _number((headers or {}).get(DEADLINE, "")) / 1000


def milliseconds(deadline: float) -> int:
    """A deadline (seconds since the epoch) in milliseconds; 0 for none or an impossible one."""
    return int(deadline * 1000) if 0 < deadline < MAX_INSTANT / 1000 else 0


def sequence_of(headers: Mapping[str, str] | None) -> int:
    """The number of a frame in its stream; 0 from a peer that does not count."""
    return int(_number((headers or {}).get(SEQUENCE, "")))


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        return 0.0
    return number if 0 <= number < MAX_INSTANT else 0.0
