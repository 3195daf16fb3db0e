"""Options, defaults and counts of a durable server."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypedDict

from postroom_a2a.durable.performing import AtWork, Lost
from postroom_a2a.durable.streams import Streams
from postroom_a2a.nats.port import Frame

CONCURRENCY = 16
"""Requests in work at a time by default."""

SURPLUS = 4
"""Further requests that a busy server holds, so that a get or a cancel still comes through."""

QUICK = 16
"""Calls at a time that neither begin work nor stream (get, cancel, ...)."""

WATCHING = 64
"""Streams at a time that begin no work (subscribe)."""

KNOWN_CLIENTS = 4096
"""Response subjects that a server remembers as stored."""

UNSENT = 256
"""Further requests that a server holds while it cannot store their answers."""

ACK_WAIT = 30.0
"""Seconds without a heartbeat after which another server gets a request."""

ABANDON_AFTER = 300.0
"""Seconds after which a server does not begin a request without a deadline."""

MAX_DELIVER = 5
"""Deliveries of a request, or refusals of its answer, before the server gives it up."""

DRAIN = 10.0
"""Seconds that running requests get when the server ends."""

CANCEL_GRACE = 5.0
"""Seconds that a cancelled request then gets for its answer."""

GRACE = 5.0
"""Seconds that the owner of a claim gets to return to a restarted NATS server."""


@dataclass(frozen=True, slots=True)
class DurableStatistics:
    """Counts of one server since its start.

    Attributes:
        answered: requests whose answer is stored.
        rejected: requests without performance and answer: expired, or without a subject for the answer.
        lost: requests that a process began and did not end.
        dead: requests that were given up.
        refused_answers: times that a stream did not take an answer.
    """

    held: int
    answered: int
    rejected: int
    lost: int
    dead: int
    refused_answers: int
    pulls: int


class DurableOptions(TypedDict, total=False):
    """The options of `DurableServer`, for classes that build on it."""

    durable: str
    streams: Streams | None
    response_subjects: Sequence[str]
    concurrency: int
    lane: bool
    ack_wait: float
    abandon_after: float
    deliver: Literal["recent", "all"]
    max_deliver: int
    lost: Lost | None
    at_work: AtWork
    admit: Callable[[Frame], str | None]
    drain: float
    grace: float
    prefix: str
