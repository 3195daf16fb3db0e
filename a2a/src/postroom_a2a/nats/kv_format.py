"""How a bucket's stream is configured, and what its messages say (ADR-8). Pure."""

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
    """Of a new bucket; one that is there already is used as it is, but for `key_ttl`.

    Attributes:
        history: revisions of a key that are kept.
        max_age: seconds that a key is kept; 0 for ever.
        max_bytes: of the whole bucket; -1 for no limit. A full one refuses (`StreamFull`).
        max_value: bytes of one value with its headers; -1 for no limit.
        key_ttl: whether a key may have a time to live of its own. A bucket that lacks it is asked to have it.
        marker_ttl: seconds that the mark of an expired or purged key is kept, so that watchers hear of it.
        direct: whether every replica answers a get, and not the leader alone.
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
        """As the configuration of the bucket's stream."""
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
        """What a bucket needs so that keys may have a time to live."""
        return {"allow_msg_ttl": True, "subject_delete_marker_ttl": int(self.marker_ttl * 1e9)}


@dataclass(frozen=True, slots=True)
class BucketEntry:
    """What a key holds.

    Attributes:
        value: bytes; b"" for a deletion.
        revision: of this key, which `update` expects; it grows with each write of the bucket.
        deleted: the key is gone (only a watch says so).
        ttl: seconds to live that it was written with; 0 for none.
    """

    key: str
    value: bytes
    revision: int
    deleted: bool = False
    ttl: float = 0.0


def read_entry(key: str, record: Record) -> BucketEntry:
    """The entry that a stored message is; a mark of a deletion or an expiry is a deleted one."""
    headers = record.headers
    if headers.get(OPERATION) in ("DEL", "PURGE") or MARKER in headers:
        return BucketEntry(key, b"", record.sequence, deleted=True)
    return BucketEntry(key, record.payload, record.sequence, ttl=_seconds(headers.get(TTL, "")))


def _seconds(text: str) -> float:
    """A time to live as the header states it: whole seconds, or a duration such as `1h30m`; 0 for none."""
    return sum(float(number) * _UNITS[unit or "s"] for number, unit in _DURATION.findall(text))
