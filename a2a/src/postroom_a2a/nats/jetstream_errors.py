"""What the errors of JetStream's API mean. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from postroom_a2a.errors import LostUpdate, MessageTooLarge, PostroomError, Refused, StreamFull

TEMPORARY = frozenset({10008, 10009, 10026, 10039})
"""Error codes that mean "not now": the server is starting, has no leader, or has as many consumers as it may have."""

# JetStream's error codes (NATS server, errors.json).
_KINDS: dict[int, type[PostroomError]] = {
    10054: MessageTooLarge,
    10071: LostUpdate,
    10077: StreamFull,
    10164: LostUpdate,
}


def refusal(error: Mapping[str, Any], what: str) -> PostroomError:
    """The error that JetStream's `error` object reports."""
    kind = _KINDS.get(int(error.get("err_code", 0)), Refused)
    return kind(f"{what}: {error.get('description', 'refused without a reason')}")
