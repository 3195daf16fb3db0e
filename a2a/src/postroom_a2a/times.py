"""Instants: RFC 3339 in UTC with milliseconds on the wire, seconds since the epoch as float in the program."""

from __future__ import annotations

from datetime import UTC, datetime

from postroom_a2a.errors import InvalidInput, ProtocolViolation


def format_time(seconds: float) -> str:
    """`2026-01-31T12:00:00.000Z` for seconds since the epoch.

    Raises:
        InvalidInput: the instant is outside the years 1 to 9999.
    """
    try:
        instant = datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError) as error:  # by platform and size
        raise InvalidInput(f"{seconds} seconds since 1970 is not a time") from error
    return instant.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def parse_time(text: str) -> float:
    """Seconds since the epoch for an RFC 3339 text with a zone.

    Raises:
        ProtocolViolation: `text` is not such a time, or has no form in UTC.
    """
    try:
        instant = datetime.fromisoformat(text)
        if instant.tzinfo is None:
            raise ProtocolViolation(f"{text!r} names no time zone")
        # UTC may move it out of the years 1 to 9999, so that it could not be written again.
        return instant.astimezone(UTC).timestamp()
    except (ValueError, OverflowError) as error:
        raise ProtocolViolation(f"{text!r} is not an RFC 3339 time") from error
