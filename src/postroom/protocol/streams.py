"""The streams and consumers of JetStream as data (docs/architecture.md, Streams).

Durations are seconds, sizes bytes. Rollup, per-message TTL, schedules, counters and batches stay off on all of
them: a worker's header must never be able to delete or reorder what others stored.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from postroom.protocol import subjects
from postroom.protocol.intervals import ACK_WAIT, PRESENCE_LIFETIME
from postroom.protocol.limits import INBOX_PER_PAIR, LETTERS_PER_PAIR, MAX_PAYLOAD

AGENT_CONSUMER_STREAMS = ("INBOX", "PRIORITY", "RECEIPTS", "FEED")
"""Streams on which each agent has one durable pull consumer, named by its uid."""

MAX_DELIVER = 3
"""Deliveries of one message before it is a dead letter; of one to an agent, losses with the agent that held it."""

INBOX_DELIVERIES = 1000
"""Deliveries of one message to an agent before the server gives it up. The server also counts what was given back on
purpose, at each stop of the worker; what was lost the sidecar counts, and refuses at `MAX_DELIVER`."""

REDELIVERY_DELAYS = (1.0, 5.0)
"""Seconds to wait after the first and the second refused delivery."""

DUPLICATE_WINDOW = 120.0
"""Seconds during which the server refuses to store a `Nats-Msg-Id` twice."""


@dataclass(frozen=True, slots=True)
class StreamSpec:
    """What a stream must be.

    Attributes:
        discard_new: full means a typed refusal of the new record; otherwise the oldest goes.
        max_age: seconds a record is kept, 0 for no limit.
        max_per_subject: records kept per subject, 0 for no limit.
        max_per_subject_refuses: a full subject refuses the new record (bounds each pair of recipient and sender).
        passing: its records count for seconds, so our own server need not write them to the disk.
    """

    name: str
    subjects: tuple[str, ...]
    max_bytes: int
    max_messages: int = -1
    max_message_bytes: int = MAX_PAYLOAD
    discard_new: bool = False
    max_age: float = 0.0
    max_per_subject: int = 0
    max_per_subject_refuses: bool = False
    max_consumers: int = 20_000
    duplicate_window: float = DUPLICATE_WINDOW
    passing: bool = False


@dataclass(frozen=True, slots=True)
class ConsumerSpec:
    """What a durable pull consumer must be; explicit ack always."""

    stream: str
    durable: str
    filter_subjects: tuple[str, ...] = ()
    ack_wait: float = ACK_WAIT
    max_deliver: int = MAX_DELIVER
    max_ack_pending: int = 256
    start_sequence: int = 0
    start_new: bool = False
    metadata: dict[str, str] = field(default_factory=dict)


_MIB = 1024 * 1024
_GIB = 1024 * _MIB

_SMALL = 8 * 1024
"""Bytes of a record that has a line of text at most."""

_PER_SOURCE = 4096
"""Alerts and announcements of one agent, and advisories of one consumer, that are kept: who floods loses its own and
nobody else's."""

STREAMS: tuple[StreamSpec, ...] = (
    StreamSpec(
        "INBOX",
        ("worker.*.inbox.*",),
        max_bytes=4 * _GIB,
        discard_new=True,
        max_per_subject=INBOX_PER_PAIR,
        max_per_subject_refuses=True,
    ),
    StreamSpec("PRIORITY", ("worker.*.priority.*",), max_bytes=1 * _GIB, discard_new=True),
    StreamSpec("TASKS", ("worker.*.tasks.>",), max_bytes=4 * _GIB, discard_new=True),
    StreamSpec(
        "RECEIPTS",
        ("worker.*.receipts.*",),
        max_bytes=1 * _GIB,
        max_message_bytes=_SMALL,
        discard_new=True,
    ),
    StreamSpec("EVENTS", ("worker.*.events",), max_bytes=4 * _GIB, discard_new=True),
    StreamSpec("FEED", ("project.*.feed.*",), max_bytes=1 * _GIB),
    StreamSpec(
        "OUTBOX",
        ("worker.*.outbox",),
        max_bytes=256 * _MIB,
        max_age=7 * 86400.0,
        max_per_subject=_PER_SOURCE,
    ),
    StreamSpec(
        "ALERTS",
        ("system.alerts.*",),
        max_bytes=256 * _MIB,
        max_message_bytes=_SMALL,
        max_age=30 * 86400.0,
        max_per_subject=_PER_SOURCE,
    ),
    # The copy of the audit log; the files are the log. The control plane alone reaches it.
    StreamSpec("AUDIT", ("audit.*",), max_bytes=1 * _GIB, max_age=30 * 86400.0),
    StreamSpec(
        "DEADLETTER",
        ("system.deadletter.>",),
        max_bytes=1 * _GIB,
        discard_new=True,
        max_per_subject=LETTERS_PER_PAIR,
        max_per_subject_refuses=True,
    ),
    StreamSpec(
        "ADVISORIES",
        (
            "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.>",
            "$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.>",
        ),
        max_bytes=1 * _GIB,
        max_message_bytes=_SMALL,
        max_age=30 * 86400.0,
        max_per_subject=_PER_SOURCE,
    ),
    StreamSpec(
        "PRESENCE",
        ("worker.*.status",),
        max_bytes=64 * _MIB,
        max_age=PRESENCE_LIFETIME,
        max_per_subject=1,
        duplicate_window=PRESENCE_LIFETIME,
        passing=True,
    ),
)

BY_NAME = {spec.name: spec for spec in STREAMS}

CARDS_BUCKET = "cards"
"""KV bucket of Agent Cards; only the control plane writes it."""


def card_key(org: str, uid: str) -> str:
    """Key under which the registry keeps the card of agent `uid`."""
    return f"{org}.agents.{uid}"


PRESENCE_BUCKET = "presence"
"""KV bucket sourced from PRESENCE."""

# Kinds of subject whose records are stored, and where.
_STREAM_OF_KIND = {
    "inbox": "INBOX",
    "priority": "PRIORITY",
    "tasks": "TASKS",
    "receipts": "RECEIPTS",
    "outbox": "OUTBOX",
    "status": "PRESENCE",
    "events": "EVENTS",
    "feed": "FEED",
    "alerts": "ALERTS",
    "deadletter": "DEADLETTER",
    "audit": "AUDIT",
}


def stream_of(subject: str) -> str:
    """Name of the stream that stores `subject`, "" if none does.

    Raises:
        InvalidInput: `subject` is not in the table.
    """
    return _STREAM_OF_KIND.get(subjects.parse(subject).kind, "")


def agent_consumer(stream: str, uid: str, projects: tuple[str, ...] = ()) -> ConsumerSpec:
    """The consumer of agent `uid` on one of `AGENT_CONSUMER_STREAMS`."""
    filters = {
        "INBOX": [subjects.inbox(uid, "*")],
        "PRIORITY": [subjects.priority(uid, "*")],
        "RECEIPTS": [subjects.receipts(uid, "*")],
        "FEED": subjects.feed_filters(projects),
    }[stream]
    # A newcomer is not flooded with a feed's past: it asks for history when it wants it.
    return ConsumerSpec(
        stream,
        uid,
        tuple(filters),
        max_deliver=INBOX_DELIVERIES if stream == "INBOX" else MAX_DELIVER,
        start_new=stream == "FEED",
    )


def redelivery_delay(attempt: int) -> float:
    """Seconds to wait before a message that was refused at its `attempt`-th delivery comes again."""
    return REDELIVERY_DELAYS[min(max(attempt, 1), len(REDELIVERY_DELAYS)) - 1]
