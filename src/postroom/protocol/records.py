"""Reading the JSON of a record as what it is: something that anyone may have stored.

Python's reader takes more than JSON: NaN, infinities, lone surrogates. Such a value would be read here and
break later, where it is stored, answered or shown, so it is refused at the border. So is what is nested deep: how
deep Python can go depends on who calls, so what one place can read another one cannot write.
"""

from __future__ import annotations

from typing import Any

from postroom.errors import ProtocolViolation
from postroom.protocol.limits import MAX_DEPTH, TASK_DEPTH
from postroom_a2a import strict_json
from postroom_a2a.strict_json import deeper_than

YEAR_10000 = 253_402_300_800.0
"""The first second that RFC 3339 cannot write."""

PRIORITY_DEPTH = TASK_DEPTH + 8
"""In records of PRIORITY: a task is a part of some."""


def read_record(payload: bytes, depth: int = MAX_DEPTH) -> dict[str, Any]:
    """The JSON object in `payload`: UTF-8, finite numbers, no lone surrogates (RFC 8259, RFC 7493 section 2), and
    nested `depth` deep at most.

    Raises:
        ProtocolViolation: it is anything else.
    """
    try:
        record = strict_json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise ProtocolViolation(f"not JSON: {error}") from error
    if not isinstance(record, dict):
        raise ProtocolViolation("not a JSON object")
    if too_deep(record, payload, depth):
        raise ProtocolViolation(f"nested more than {depth} deep")
    return record


def too_deep(record: dict[str, Any], payload: bytes, depth: int) -> bool:
    """Whether more than `depth` objects and arrays are within one another in `record`, which is `payload` as JSON."""
    if payload.count(b"{") + payload.count(b"[") <= depth:
        return False
    return deeper_than(record, depth)


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
