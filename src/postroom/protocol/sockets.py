"""WebSockets of the API: what closes one, and how a browser brings its key. Pure.

A program sends its key in the header `Authorization`, as with every request. A browser cannot set one on a WebSocket:
it offers the subprotocols `postroom` and `postroom.bearer.<key>`, and the first of them is taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

SUBPROTOCOL = "postroom"
"""The subprotocol that is taken, where it is offered."""

BEARER = "postroom.bearer."
"""Begins a subprotocol that brings a key."""

MAX_CLOSE_REASON = 123
"""Bytes of the reason in a close frame (RFC 6455, section 5.5)."""


class Code(IntEnum):
    """Why a WebSocket was closed (RFC 6455, section 7.4.1, and the registry of IANA)."""

    DONE = 1000
    GOING_AWAY = 1001
    MALFORMED = 1007
    REFUSED = 1008
    TOO_LARGE = 1009
    FAILED = 1011
    RESTARTING = 1012
    TRY_AGAIN = 1013


def bearer_of(offered: Sequence[str]) -> str:
    """The key among the subprotocols that a client offers, "" for none."""
    return next((name[len(BEARER) :] for name in offered if name.startswith(BEARER)), "")


def cut_reason(reason: str) -> str:
    """`reason` as it fits a close frame."""
    return reason.encode()[:MAX_CLOSE_REASON].decode("utf-8", "ignore")
