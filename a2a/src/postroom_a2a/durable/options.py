"""What a durable server may be told, its defaults, and what it counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypedDict

from postroom_a2a.durable.performing import AtWork, Lost
from postroom_a2a.durable.streams import Streams
from postroom_a2a.nats.port import Frame

CONCURRENCY = 16
"""Requests that are worked on at a time, unless the server is told otherwise."""

SURPLUS = 4
"""Requests that may be held beyond that, so that a get or a cancel behind a full house still comes through."""

QUICK = 16
"""Calls at a time that neither begin work nor stream (get, cancel, ...)."""

WATCHING = 64
"""Streams at a time that begin no work (subscribe)."""

KNOWN_CLIENTS = 4096
"""Response subjects that a server remembers to be good."""

UNSENT = 256
"""Requests that may be held because their answers cannot be stored yet."""

ACK_WAIT = 30.0
"""Seconds after which another server gets a request whose server does not say that it is at it."""

ABANDON_AFTER = 300.0
"""Seconds after which a request without a deadline is not begun any more."""

MAX_DELIVER = 5
"""Times that a request is handed out, or its answer refused, before it is given up."""

DRAIN = 10.0
"""Seconds that running requests get when the server ends."""

CANCEL_GRACE = 5.0
"""Seconds in which what was cancelled then has to be answered."""

GRACE = 5.0
"""Seconds for which the owner of a claim may be on its way back to a restarted NATS server."""


@dataclass(frozen=True, slots=True)
class DurableStatistics:
    """Counts of one server since its start.

    Attributes:
        answered: requests whose answer is stored.
        rejected: requests that were not performed and not answered: expired, or nobody to answer.
        lost: requests that another process had begun.
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
    """The options of `DurableServer`, for what builds on it."""

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
