"""The configuration of a bucket's stream, and the entries in its messages (ADR-8). Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from postroom_a2a.nats.jetstream import TTL
from postroom_a2a.nats.records import Record

OPERATION = "KV-Operation"
MARKER = "Nats-Marker-Reason"
ROLLUP = "Nats-Rollup"

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)?")


@dataclass(frozen=True, slots=True)
class BucketSettings:
    """The settings of a new bucket; of a bucket that exists, only `key_ttl` is changed.

    Attributes:
        history: revisions to keep of a key.
        max_age: seconds to keep a key; 0 for ever.
        max_bytes: size of the whole bucket; -1 for no limit. A full bucket refuses writes (`StreamFull`).
        max_value: bytes of one value with its headers; -1 for no limit.
        key_ttl: whether a key may have a time to live of its own; switched on in a bucket that exists.
        marker_ttl: seconds to keep the mark of an expired or purged key, so that watchers see it.
        direct: whether every replica answers a get, and not only the leader.
        storage: "file" or "memory".
    """

    history: int = 1
    max_age: float = 0.0
    max_bytes: int = -1
    max_value: int = -1
    key_ttl: bool = False
    marker_ttl: float = 60.0
    direct: bool = True
    storage: str = "file"
    replicas: int = 1

    def config(self, bucket: str) -> dict[str, Any]:
        """The configuration of the bucket's stream."""
        config: dict[str, Any] = {
            "name": f"KV_{bucket}",
            "subjects": [f"$KV.{bucket}.>"],
            "retention": "limits",
            "max_msgs_per_subject": self.history,
            "max_bytes": self.max_bytes,
            "max_msg_size": self.max_value,
            "max_age": int(self.max_age * 1e9),
            "storage": self.storage,
            "discard": "new",
            "allow_direct": self.direct,
            "num_replicas": self.replicas,
            "allow_rollup_hdrs": True,
        }
        return config | (self.ttl_config() if self.key_ttl else {})

    def ttl_config(self) -> dict[str, Any]:
        """The part of the configuration that allows keys a time to live."""
        return {"allow_msg_ttl": True, "subject_delete_marker_ttl": int(self.marker_ttl * 1e9)}


@dataclass(frozen=True, slots=True)
class BucketEntry:
    """The value of a key, or its deletion.

    Attributes:
        revision: the number that `update` expects; it grows with each write of the bucket.
        deleted: whether the key is gone (only a watch yields such an entry).
        ttl: the time to live that it was written with, in seconds; 0 for none.
    """

    key: str
    value: bytes
    revision: int
    deleted: bool = False
    ttl: float = 0.0


def read_entry(key: str, record: Record) -> BucketEntry:
    """The entry in a stored message; the mark of a deletion or expiry makes a deleted one."""
    headers = record.headers
    if headers.get(OPERATION) in ("DEL", "PURGE") or MARKER in headers:
        return BucketEntry(key, b"", record.sequence, deleted=True)
    return BucketEntry(key, record.payload, record.sequence, ttl=_seconds(headers.get(TTL, "")))


def _seconds(text: str) -> float:
    """The seconds in a TTL header: whole seconds, or a duration such as `1h30m`; 0 for none."""
    return sum(float(number) * _UNITS[unit or "s"] for number, unit in _DURATION.findall(text))
