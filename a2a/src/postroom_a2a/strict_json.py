"""JSON as every JSON library reads it (RFC 8259, RFC 7493 section 2), fast: orjson, and Python's own where it differs.

What is read has only finite numbers and no lone surrogates, so that it can be stored, answered and shown again.
"""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

import orjson

_LONG = b"0" * 19
"""Digits in a row from which on a number may be beyond 64 bits: orjson reads such an integer as a float."""

_PLAIN = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME
"""Only what Python's own writer takes: a text that is no text by mistake shows at once."""

_ZEROS = bytes.maketrans(b"123456789", b"0" * 9)


def loads(payload: bytes) -> Any:
    """The value in `payload`, which is UTF-8; of a name that comes twice the last value counts.

    Raises:
        ValueError: it is anything else, has a number that is not finite or a lone surrogate, or is nested about a
            thousand deep.
    """
    if _LONG in payload.translate(_ZEROS):
        return _exact(payload)
    return orjson.loads(payload)


def dumps(value: Any) -> bytes:
    """`value` (dicts, lists, str, int, float, bool, None) as UTF-8 without spaces; "?" for a lone surrogate.

    Raises:
        ValueError, TypeError, RecursionError: JSON has no form for it; NaN and infinities have none.
    """
    try:
        payload = orjson.dumps(value, None, _PLAIN)
    except TypeError:
        # Surrogates, large integers, other keys than strings, deep nesting, and what JSON cannot express.
        return _slowly(value)
    # orjson writes NaN as null, which most records do not have.
    return _slowly(value) if b"null" in payload else payload


def deeper_than(value: Any, depth: int, most: float = math.inf) -> bool:
    """Whether more than `depth` objects and arrays are within one another in `value`, or more than `most` in all."""
    level: list[Any] = [value] if isinstance(value, dict | list) else []
    for _ in range(depth):
        inside = (each.values() if isinstance(each, dict) else each for each in level)
        level = [value for values in inside for value in values if isinstance(value, dict | list)]
        most -= len(level)
        if not level or most < 0:
            break
    return bool(level)


def _exact(payload: bytes) -> Any:
    try:
        value = _decode(payload.decode())
    except RecursionError as error:
        raise ValueError("nested too deep") from error
    orjson.loads(payload)  # refuses lone surrogates
    return value


def _slowly(value: Any) -> bytes:
    return _encode(value).encode("utf-8", "replace")


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"the number {digits} is too large")
    return number


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


# Made once: `json.loads` and `json.dumps` make one for each call with an option.
_decode = json.JSONDecoder(parse_constant=_no_constant, parse_float=_finite).decode
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode
