"""The gateway's promises: the `GatewayProvider` port, and the settings of its parts."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True)
class DoorDeadlines:
    """Seconds that a connection has.

    Attributes:
        dial: until its upstream is open.
        flush: to take what is buffered when both sides have ended; then it is cut.
    """

    preface: float = 5.0
    dial: float = 5.0
    flush: float = 10.0


DEADLINES = DoorDeadlines()


@dataclass(frozen=True, slots=True)
class Rates:
    """The rates that one worker may put through its door; 0 means no limit.

    Attributes:
        messages: frames a second, with a burst of ten seconds; a faster worker is slowed down, not refused.
        bytes: bytes a second, likewise.
        stored_bytes: bytes an hour on subjects that a stream stores; more is refused.
        records: messages a second that a stream stores, with a burst of ten seconds; a faster worker is slowed down.
            The post office folds all records of a stream in order, those of every worker.
    """

    messages: int = 2_000
    bytes: int = 64 * 1024 * 1024
    stored_bytes: int = 512 * 1024 * 1024
    records: int = 200
    connections: int = 64


@dataclass(frozen=True, slots=True)
class DoorSpec:
    """One worker's door.

    Attributes:
        uid, org: the worker's; no other sender passes.
        token_sha256: digest of the token that each connection shows first.
        projects: whose feeds it may post to.
        egress: hosts of its template's allow-list.
        credentials: names of those that may be added to its requests.
    """

    uid: str
    org: str
    token_sha256: str = field(repr=False)
    projects: tuple[str, ...] = ()
    egress: tuple[str, ...] = ()
    credentials: tuple[str, ...] = ()
    rates: Rates = Rates()


@dataclass(frozen=True, slots=True)
class GatewayStatistics:
    """Counters since the gateway was opened.

    Attributes:
        frames: messages and requests that came through doors, and new connections, each as its rate counts it.
        bytes: that came from workers for the bus.
    """

    doors: int = 0
    open_connections: int = 0
    accepted: int = 0
    refused: int = 0
    violations: int = 0
    frames: int = 0
    bytes: int = 0


class AuditSink(Protocol):
    """Takes audit records. What it cannot keep is not forwarded."""

    def write(self, lines: bytes) -> None:
        """Append whole lines (`AuditRecord.encode`) in one write, before what they describe is forwarded.

        Raises:
            StateUnwritable: the disk is full or the folder gone.
        """


class GatewayProvider(Protocol):
    """One door per worker; what goes through is in the audit log, tied to the worker.

    A connection counts only if its first line names a known protocol and shows the token of the worker whose
    door it came through; a token is worth nothing at another door.
    """

    async def open_door(self, spec: DoorSpec) -> Path:
        """Open a worker's door; returns the socket that its sandbox gets.

        Raises:
            EnvironmentFault: the socket cannot be made.
        """

    async def close_door(self, uid: str) -> None:
        """Close the door and every connection that came through it. Idempotent."""

    async def close(self) -> None:
        """Close every door."""

    def statistics(self) -> GatewayStatistics:
        """Counters since the gateway was opened."""
