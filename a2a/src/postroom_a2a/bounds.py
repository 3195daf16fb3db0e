"""The limits of ids, cards and messages on the wire, each in one place, and that of a caller's requests. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager

MAX_CONTEXT = 256
"""Characters of a context id. Every snapshot and every event of a task repeats it."""

MAX_ID = MAX_CONTEXT
"""Characters of an id of a task or a message that a client gives."""

MAX_PAGE = 100
"""Tasks in one answer to ListTasks."""

MAX_VALUES = 40_000
"""Values (objects, arrays, texts, numbers) of a request or an answer: reading it keeps all others waiting."""

MAX_LEVELS = 128
"""Objects and arrays within one another in it: each reader of it goes down by a call of its own."""

MAX_CARD_BYTES = 64 * 1024
"""Bytes of an Agent Card."""

MAX_PAYLOAD = 64 * 1024 * 1024
"""Bytes of one message of NATS, headers and all: the most that a server can be set to."""

MAX_SERVER_LINE = 64 * 1024
"""Bytes of a control line of a server, INFO among them. A subject may be as long as the server's `max_control_line`
allows a publisher, so a lower bound would let a stranger end this connection."""

MAX_CLIENT_LINE = 4096
"""Bytes of a control line of a client: by default the server ends a connection that sends a longer one."""


class ConcurrencyLimit:
    """Counts each caller's running requests.

    A caller over the limit gets an error instead of a place in a queue: a queue takes memory, and hides the overload.

    Args:
        refusal: makes that error.
    """

    def __init__(self, at_most: int, refusal: Callable[[], Exception]) -> None:
        self._at_most = at_most
        self._refusal = refusal
        self._under_way: Counter[str] = Counter()

    @contextmanager
    def slot(self, caller: str = "") -> Generator[None]:
        """Count one request while the block runs; raises the refusal over the limit."""
        if self._under_way[caller] >= self._at_most:
            raise self._refusal()
        self._under_way[caller] += 1
        try:
            yield
        finally:
            self._under_way[caller] -= 1
            if not self._under_way[caller]:
                del self._under_way[caller]
