"""Instants on the wire: RFC 3339 in UTC with milliseconds; in the program: seconds since the epoch as float."""

from __future__ import annotations

from datetime import UTC, datetime

from postroom.errors import ProtocolViolation


def format_time(seconds: float) -> str:
    """`2026-01-31T12:00:00.000Z` for seconds since the epoch."""
    return (
        datetime.fromtimestamp(seconds, UTC)
        .isoformat(timespec="milliseconds")
        .replace("+00:00", "Z")
    )


def parse_time(text: str) -> float:
    """Seconds since the epoch for an RFC 3339 text with a zone.

    Raises:
        ProtocolViolation: it is not one.
    """
    try:
        instant = datetime.fromisoformat(text)
    except ValueError as error:
        raise ProtocolViolation(f"{text!r} is not an RFC 3339 time") from error
    if instant.tzinfo is None:
        raise ProtocolViolation(f"{text!r} names no time zone")
    return instant.timestamp()
