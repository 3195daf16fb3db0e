"""What JetStream's error codes (NATS server, errors.json) mean: ask again, nothing was stored, or nobody knows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from postroom_a2a.errors import (
    Forbidden,
    LostUpdate,
    MessageTooLarge,
    PostroomError,
    Refused,
    RequestTimeout,
    StreamFull,
)

TEMPORARY = frozenset({10008, 10009, 10026, 10039, 10158, 10163, 10167, 10201})
"""Codes that another attempt may be spared: the server is starting, has no leader, has as many consumers as it may
have, is asked too much, or has a copy of the message on its way to the disk.
"""

_UNLED = frozenset({10008, 10009, 10158, 10201})
"""Those of a server that hears nothing of a leader, or as a leader nothing of its followers."""

_KINDS: dict[int, type[PostroomError]] = {
    10054: MessageTooLarge,
    10071: LostUpdate,
    10077: StreamFull,
    10164: LostUpdate,
}

# What the server finds wrong with a message, or with its stream, before it proposes or stores anything: resources of
# the server and the account, conditions and kinds of messages that the stream does not take.
_NOT_TAKEN = frozenset(
    {10002, 10003, 10023, 10028, 10047, 10060, 10063, 10070, 10097, 10109, 10111, 10165, 10166}
    | {10168, 10169, 10170, 10171, 10172, 10174, 10175, 10176, 10177, 10179, 10180, 10199, 10200}
    | {10188, 10189, 10190, 10191, 10192, 10193, 10203, 10205, 10206, 10207, 10208, 10210, 10211}
    | {10167, 10212, 10223, 10227}
)

_BY_GATEWAY: dict[int, type[PostroomError]] = {403: Forbidden, 429: Refused}

UNCERTAIN = "repeat it as the same message (the same key or id): it is then stored once"
"""What to do about a request whose answer leaves open what became of it."""


def is_temporary(document: Mapping[str, Any]) -> bool:
    """Whether the same request may get another answer soon."""
    return code_of(document.get("error") or {}) in TEMPORARY


def is_unled(document: Mapping[str, Any]) -> bool:
    """Whether the server that answered may be cut off from the others of its cluster."""
    return code_of(document.get("error") or {}) in _UNLED


def code_of(error: Mapping[str, Any]) -> int:
    """The code of JetStream's `error` object, 0 for none."""
    code = error.get("err_code", 0)
    return code if isinstance(code, int) else 0


def of_call(error: Mapping[str, Any], what: str) -> PostroomError:
    """The error of a call of JetStream's API."""
    return _KINDS.get(code_of(error), Refused)(_text(error, what))


def of_publish(error: Mapping[str, Any], subject: str, *, first: bool) -> PostroomError:
    """The error of a publish; a refusal says that nothing was stored, so only what is known to mean that is one.

    Args:
        first: whether the message was sent once: the refusal of a copy says nothing of the one before. Those of
            `_KINDS` do, since the server knows a copy before it looks for them.
    """
    code = code_of(error)
    if code in _KINDS:
        return of_call(error, f"{subject!r} was not stored")
    # A gateway in between, which passed nothing on, has no code but that of HTTP.
    by_gateway = _BY_GATEWAY.get(error.get("code", 0)) if not code else None
    kind = Refused if code in _NOT_TAKEN else by_gateway
    if kind is not None and first:
        return kind(_text(error, f"{subject!r} was not stored"))
    return RequestTimeout(_text(error, f"{subject!r} is perhaps stored"), remedy=UNCERTAIN)


def perhaps(error: Refused, subject: str) -> RequestTimeout:
    """The error of a message of which a copy was not sent, and one before it perhaps stored."""
    return RequestTimeout(f"{subject!r} is perhaps stored: {error.message}", remedy=UNCERTAIN)


def _text(error: Mapping[str, Any], what: str) -> str:
    return f"{what}: {error.get('description') or 'refused without a reason'}"
