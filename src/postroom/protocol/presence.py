"""A worker's report of its state on `worker.<uid>.status`, and how long it counts."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum

from postroom.errors import ProtocolViolation
from postroom.protocol.limits import MAX_STATUS
from postroom.protocol.records import instant, read_record
from postroom_a2a.text import one_line

OUT_OF_MEMORY = 87
"""Exit code of a sidecar that ran out of memory: it can report this in no other way."""

LAST_WORDS = 8
"""Lines of an agent's last output that are shown."""

MAX_WAITING = 1_000_000
"""A worker that claims more unconfirmed messages than this does not count messages."""


class WorkerState(StrEnum):
    """State of a worker. `UNKNOWN` stands where neither presence nor an exit status tells."""

    STARTING = "starting"
    IDLE = "idle"
    WORKING = "working"
    STALLED = "stalled"
    FAILED = "failed"
    EXITED = "exited"
    STOPPED = "stopped"
    UNKNOWN = "unknown"


ONLINE = frozenset({WorkerState.IDLE, WorkerState.WORKING, WorkerState.STALLED})
"""States of an agent that runs and takes messages."""

OVER = frozenset({WorkerState.FAILED, WorkerState.EXITED, WorkerState.STOPPED})
"""States of an agent that has ended and does not start again by itself."""


@dataclass(frozen=True, slots=True)
class Presence:
    """One status message.

    Attributes:
        detail: for people, e.g. `exit code 1`.
        sandbox: enforcement level that the sidecar's own test found (`enforced`, `partial`, `none`).
        waiting: delivered messages that the agent has not confirmed.
        at: instant of the report.
        stderr: the last lines of the agent's standard error before it ended; none while it runs.
        trouble: the agent's newest error, or what it printed that cannot be read, while nothing better followed.
        until: instant until which the agent waits before it tries again; 0 where it does not say.
    """

    state: WorkerState
    at: float
    started_at: float
    detail: str = ""
    sandbox: str = ""
    waiting: int = 0
    stderr: tuple[str, ...] = ()
    trouble: str = ""
    until: float = 0.0

    def encode(self) -> bytes:
        """The payload."""
        return json.dumps({"v": 1, **asdict(self)}, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, payload: bytes) -> Presence:
        """The presence in a payload."""
        record = read_record(payload)
        waiting = record.get("waiting", 0)
        if not isinstance(waiting, int) or not 0 <= waiting <= MAX_WAITING:
            raise ProtocolViolation("waiting is no number of messages")
        try:
            return cls(
                state=WorkerState(record["state"]),
                at=instant(record, "at"),
                started_at=instant(record, "started_at"),
                detail=one_line(str(record.get("detail", "")), 200),
                sandbox=one_line(str(record.get("sandbox", "")), 20),
                waiting=waiting,
                stderr=_lines(record.get("stderr")),
                trouble=one_line(str(record.get("trouble", "")), MAX_STATUS),
                until=instant(record, "until") if record.get("until") else 0.0,
            )
        except (ValueError, KeyError, RecursionError) as error:
            raise ProtocolViolation(f"not a presence record: {error}") from error


def _lines(said: object) -> tuple[str, ...]:
    if not isinstance(said, list):
        return ()
    return last_words(line for line in said if isinstance(line, str))


def last_words(lines: Iterable[str]) -> tuple[str, ...]:
    """The last of `lines` with their indentation, harmless for terminals."""
    kept = deque(lines, maxlen=LAST_WORDS)
    return tuple(_indented(line) for line in kept)


def _indented(line: str) -> str:
    text = one_line(line, MAX_STATUS)
    return " " * min(len(line) - len(line.lstrip(" ")), MAX_STATUS) + text
