"""`StreamSpec` and `ConsumerSpec` as JetStream's JSON (NATS ADR-1; durations are nanoseconds)."""

from __future__ import annotations

from typing import Any

from postroom.protocol.intervals import CARD_LIFETIME
from postroom.protocol.streams import (
    BY_NAME,
    CARDS_BUCKET,
    PRESENCE_BUCKET,
    ConsumerSpec,
    StreamSpec,
)

MARKER_TTL = 5.0
"""Seconds that the delete marker of an expired presence stays visible to watchers."""

_MIB = 1024 * 1024


def nanoseconds(seconds: float) -> int:
    """Seconds in the server's unit."""
    return round(seconds * 1e9)


def stream_config(spec: StreamSpec, *, storage: str, replicas: int) -> dict[str, Any]:
    """The request to create or update a stream.

    It switches rollup, TTL, schedules, counters and batches off instead of leaving them to a default: with one of them
    a worker's header could delete or reorder the records of others.
    """
    return {
        "name": spec.name,
        "subjects": list(spec.subjects),
        "retention": "limits",
        "storage": storage,
        "num_replicas": replicas,
        "max_bytes": spec.max_bytes,
        "max_msgs": spec.max_messages,
        "max_msg_size": spec.max_message_bytes,
        "max_age": nanoseconds(spec.max_age),
        "max_msgs_per_subject": spec.max_per_subject or -1,
        "discard": "new" if spec.discard_new else "old",
        "discard_new_per_subject": spec.max_per_subject_refuses,
        "max_consumers": spec.max_consumers,
        "duplicate_window": nanoseconds(spec.duplicate_window),
        "allow_direct": False,
        "allow_rollup_hdrs": False,
        "allow_msg_ttl": False,
        "allow_msg_schedules": False,
        "allow_msg_counter": False,
        "allow_atomic": False,
        "deny_delete": False,
        "deny_purge": False,
    }


def consumer_config(spec: ConsumerSpec) -> dict[str, Any]:
    """The request to create a consumer."""
    start: dict[str, Any] = {"deliver_policy": "new" if spec.start_new else "all"}
    if spec.start_sequence:
        start = {"deliver_policy": "by_start_sequence", "opt_start_seq": spec.start_sequence}
    return {
        "durable_name": spec.durable,
        "name": spec.durable,
        **start,
        "ack_policy": "explicit",
        "ack_wait": nanoseconds(spec.ack_wait),
        "max_deliver": spec.max_deliver,
        "max_ack_pending": spec.max_ack_pending,
        "filter_subjects": list(spec.filter_subjects),
        "replay_policy": "instant",
        "metadata": dict(spec.metadata),
    }


def bucket_config(bucket: str, *, storage: str, replicas: int) -> dict[str, Any]:
    """A KV bucket that only the control plane can reach (NATS ADR-8)."""
    return {
        "name": f"KV_{bucket}",
        "subjects": [f"$KV.{bucket}.>"],
        "retention": "limits",
        "storage": storage,
        "num_replicas": replicas,
        "max_bytes": 256 * _MIB,
        "max_msg_size": _MIB,
        "max_msgs_per_subject": 1,
        "discard": "new",
        "allow_rollup_hdrs": True,
        "deny_delete": True,
        "allow_direct": True,
        "allow_msg_ttl": True,
        "duplicate_window": nanoseconds(120),
    }


def cards_config(*, storage: str, replicas: int) -> dict[str, Any]:
    """The registry of Agent Cards; the card of an agent that is gone expires."""
    return {
        **bucket_config(CARDS_BUCKET, storage=storage, replicas=replicas),
        "max_age": nanoseconds(CARD_LIFETIME),
        "duplicate_window": nanoseconds(CARD_LIFETIME),
    }


def presence_config(*, storage: str, replicas: int) -> dict[str, Any]:
    """The presence bucket, sourced from the stream PRESENCE.

    Its source is not the workers' subjects: delete markers switch rollup on, with which any worker could wipe all keys.
    Keys expire after the source's `max_age`, with a marker that watchers see.
    """
    source = BY_NAME["PRESENCE"]
    return {
        **bucket_config(PRESENCE_BUCKET, storage=storage, replicas=replicas),
        "max_age": nanoseconds(source.max_age),
        "duplicate_window": nanoseconds(min(source.max_age, source.duplicate_window)),
        "discard": "old",
        "subject_delete_marker_ttl": nanoseconds(MARKER_TTL),
        "sources": [
            {
                "name": source.name,
                "subject_transforms": [
                    {
                        "src": source.subjects[0],
                        "dest": f"$KV.{PRESENCE_BUCKET}.{{{{wildcard(1)}}}}",
                    }
                ],
            }
        ],
    }
