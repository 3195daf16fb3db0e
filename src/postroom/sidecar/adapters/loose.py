"""Fields of records that programs of other makers print: a field of another kind than expected counts as missing. Pure.

Agents' formats change from month to month, and their lines are hostile: reading one raises nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from postroom_a2a import strict_json

MAX_COUNT = 2**53 - 1
"""The largest count that every JSON library keeps exactly (RFC 7493, section 2.2)."""

MAX_RECORD_DEPTH = 64
"""Levels of a record: what nests deeper, no agent means."""

Record = dict[str, Any]


def record_in(line: str) -> Record | None:
    """The JSON object in a line; None for anything else, and for one that nests deeper than `MAX_RECORD_DEPTH`."""
    try:
        value = strict_json.loads(line.encode("utf-8", "replace"))
    except ValueError:
        value = _lenient(line)
    if not isinstance(value, dict):
        return None
    if line.count("{") + line.count("[") > MAX_RECORD_DEPTH and _deep(value):
        return None
    return value


def text_in(record: Mapping[str, Any], *keys: str) -> str:
    """The first of these fields that has a text; "" for none."""
    for key in keys:
        value = record.get(key)
        if isinstance(value, str) and value:
            return value
    return ""


def object_in(record: Mapping[str, Any], key: str) -> Record:
    """The object in a field; {} for none."""
    value = record.get(key)
    return value if isinstance(value, dict) else {}


def objects_in(record: Mapping[str, Any], key: str) -> list[Record]:
    """The objects in a list; [] for none."""
    value = record.get(key)
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def count_in(record: Mapping[str, Any], key: str) -> int:
    """The count in a field; 0 for none, and for one that is negative."""
    value = record.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    return min(max(int(value), 0), MAX_COUNT)


def number_in(record: Mapping[str, Any], key: str) -> float:
    """The number in a field; 0 for none, and for one that is negative."""
    value = record.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0.0
    return float(min(max(value, 0), MAX_COUNT))


def said_in_blocks(value: Any) -> str:
    """The text of a message's content: a text, or blocks of which some have a `text`."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        return ""
    texts = [text_in(block, "text") for block in value if isinstance(block, dict)]
    return "\n".join(text for text in texts if text)


def _lenient(line: str) -> Any:
    """What writers of JSON make beside JSON, lone surrogates above all: they become question marks."""
    try:
        return strict_json.loads(strict_json.dumps(json.loads(line)))
    except (ValueError, RecursionError):
        return None


def _deep(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_RECORD_DEPTH):
        level = [inner for outer in level for inner in _inside(outer)]
        if not level:
            return False
    return True


def _inside(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []
