"""Fields of a record that an agent wrote: each of the kind and the size that it has to be."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from postroom.errors import InvalidInput
from postroom.protocol.tasks import TASK_ID

MAX_KEY = 256
"""Characters of an idempotency key."""

MAX_REF = 1024
"""Characters of a reference as JSON: it is kept until the agent reads its receipt."""

MAX_NAME = 200
"""Characters of a skill, of an artifact's id or name, of a context."""


def text_field(record: Mapping[str, Any], key: str, default: str | None = None) -> str:
    """A text; `default` where it is missing or null.

    Raises:
        InvalidInput: it is missing (with no default) or no text; also by the others, for what they say.
    """
    value = record.get(key, default)
    if value is None and default is not None:
        return default
    if not isinstance(value, str):
        raise InvalidInput(f"{key!r} has to be a text")
    return value


def words_field(record: Mapping[str, Any], key: str) -> str:
    """A text that says something."""
    value = text_field(record, key)
    if not value.strip():
        raise InvalidInput(f"{key!r} is empty")
    return value


def name_field(record: Mapping[str, Any], key: str, limit: int = MAX_NAME) -> str:
    """A text of at most `limit` characters, "" where it is missing."""
    value = text_field(record, key, "")
    if len(value) > limit:
        raise InvalidInput(f"{key!r} has at most {limit} characters")
    return value


def flag_field(record: Mapping[str, Any], key: str, *, default: bool = False) -> bool:
    """True or false."""
    value = record.get(key, default)
    if not isinstance(value, bool):
        raise InvalidInput(f"{key!r} has to be true or false")
    return value


def seconds_field(record: Mapping[str, Any], key: str) -> float:
    """A number of seconds, 0 where it is missing."""
    value = record.get(key) or 0
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 10**9:
        raise InvalidInput(f"{key!r} has to be a number of seconds")
    return float(value)


def task_field(record: Mapping[str, Any], default: str | None = None) -> str:
    """The id of a task; `default` where it is missing or empty."""
    value = text_field(record, "task", default)
    if value == default:
        return value
    if TASK_ID.fullmatch(value) is None:
        raise InvalidInput("'task' has to be the whole id of a task")
    return value


def key_field(record: Mapping[str, Any]) -> str:
    """The idempotency key, "" for none."""
    return name_field(record, "key", MAX_KEY)


def ref_field(record: Mapping[str, Any]) -> Any:
    """The reference, None for none."""
    if not has_short_ref(record):
        raise InvalidInput(f"a ref has at most {MAX_REF} characters")
    return record.get("ref")


def has_short_ref(record: Mapping[str, Any]) -> bool:
    """Whether the reference may be kept."""
    try:
        return len(json.dumps(record.get("ref"))) <= MAX_REF
    except RecursionError:
        return False
