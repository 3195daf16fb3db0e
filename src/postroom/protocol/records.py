"""Reading the JSON of a record as what it is: something that anyone may have stored.

Python's reader takes more than JSON: NaN, infinities, lone surrogates. Such a value would be read here and
break later, where it is stored, answered or shown, so it is refused at the border. So is what is nested deep (how
deep Python can go depends on who calls, so what one place can read another one cannot write) and what has very many
values.
"""

from __future__ import annotations

from typing import Any

from postroom.errors import InvalidInput, MessageTooLarge, ProtocolViolation
from postroom.protocol.limits import MAX_DEPTH, MAX_VALUES, TASK_DEPTH
from postroom_a2a import strict_json

YEAR_10000 = 253_402_300_800.0
"""The first second that RFC 3339 cannot write."""

AS_FILE = "put large content into a file, and send that with --file PATH"
"""What to do about a message that is too large."""

PRIORITY_DEPTH = TASK_DEPTH + 8
"""In records of PRIORITY: a task is a part of some."""


def read_record(payload: bytes, depth: int = MAX_DEPTH, most: int = MAX_VALUES) -> dict[str, Any]:
    """The JSON object in `payload`: UTF-8, finite numbers, no lone surrogates (RFC 8259, RFC 7493 section 2), nested
    `depth` deep at most, and of `most` values at most.

    Raises:
        ProtocolViolation: it is anything else.
    """
    try:
        record = strict_json.bounded(payload, depth, most)
    except strict_json.TooMuch as error:
        raise ProtocolViolation(str(error)) from error
    except (ValueError, RecursionError) as error:
        raise ProtocolViolation(f"not JSON: {error}") from error
    if not isinstance(record, dict):
        raise ProtocolViolation("not a JSON object")
    return record


def check_written(payload: bytes, what: str, depth: int, most: int) -> None:
    """Refuse JSON that `read_record` would not read again.

    Raises:
        InvalidInput: it is nested too deep.
        MessageTooLarge: it has too many values.
    """
    try:
        strict_json.check(payload, depth, most)
    except strict_json.TooMany as error:
        raise MessageTooLarge(f"{what} has {error}", remedy=AS_FILE) from error
    except strict_json.TooDeep as error:
        raise InvalidInput(f"{what} is {error}") from error


def instant(record: dict[str, Any], key: str) -> float:
    """The number under `key`, seconds since the epoch.

    Raises:
        ProtocolViolation: it is missing, no number, or outside the years 1970 to 9999.
    """
    value = record.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ProtocolViolation(f"{key} is no number")
    # Who shows it writes it as a date: one that no calendar has would spoil every list with it.
    if not 0 <= value < YEAR_10000:
        raise ProtocolViolation(f"{key} is no time")
    return float(value)
