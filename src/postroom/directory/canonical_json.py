"""Canonical JSON (RFC 8785) for values without floating point numbers.

Only the RFC's number format would need a library, and an Agent Card has whole numbers only. What remains is the order
of keys (by UTF-16 code units, section 3.2.3) and the escapes, which `json` writes as the RFC wants them.
"""

from __future__ import annotations

import json
from typing import Any

from postroom.errors import InvalidInput

MAX_INTEGER = 2**53 - 1
"""Largest whole number that every reader of JSON keeps exactly (RFC 7493, section 2.2)."""


def canonical(value: Any) -> bytes:
    """`value` as canonical JSON in UTF-8.

    Raises:
        InvalidInput: it has a float, a number over 2^53 - 1, a lone surrogate, endless nesting, or is not JSON.
    """
    try:
        return json.dumps(_ordered(value), ensure_ascii=False, separators=(",", ":")).encode()
    except (UnicodeEncodeError, RecursionError) as error:
        raise InvalidInput(f"no canonical JSON: {type(error).__name__}") from error


def _ordered(value: Any) -> Any:
    if value is None or isinstance(value, (str, bool)):
        return value
    if isinstance(value, int):
        if abs(value) > MAX_INTEGER:
            raise InvalidInput(f"no canonical JSON: a number over {MAX_INTEGER}")
        return value
    if isinstance(value, (list, tuple)):
        return [_ordered(item) for item in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        # A surrogate pair sorts below the characters after it, so code points would be another order.
        keys = sorted(value, key=lambda key: key.encode("utf-16-be"))
        return {key: _ordered(value[key]) for key in keys}
    raise InvalidInput(f"no canonical JSON: {type(value).__name__}")
