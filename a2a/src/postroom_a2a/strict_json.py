"""JSON as every JSON library reads it (RFC 8259, RFC 7493 section 2), fast: orjson, and Python's own where it differs.

What is read has only finite numbers and no lone surrogates, so that it can be stored, answered and shown again. What
strangers send is measured before anything is built of it: a few hundred KiB can hold so many values that reading,
walking and writing them keeps everybody else waiting. `check` looks at the bytes alone, in a few passes of compiled
code: about 1 ms for 384 KiB, whatever is in them.
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

_SQUARE = bytes.maketrans(b"{}", b"[]")
_NO_MARKS = bytes(set(range(256)) - set(b'"[]{},'))


class TooMuch(ValueError):
    """JSON that is over a bound."""


class TooDeep(TooMuch):
    """Too many objects and arrays are within one another."""


class TooMany(TooMuch):
    """It has too many values."""


def check(payload: bytes, depth: int, most: int) -> None:
    """Refuse JSON over a bound, without reading it; what is no JSON may pass.

    Args:
        depth: most objects and arrays within one another.
        most: most values: objects, arrays, texts, numbers, true, false and null; names are none, and what is empty
            counts as two.

    Raises:
        TooDeep, TooMany: it is over a bound.
    """
    opened = payload.count(b"[") + payload.count(b"{")
    if opened <= depth and (len(payload) <= most or opened + payload.count(b",") < most):
        return  # most are: what stands within texts is counted too, so this is never less than there is
    # A backslash stands within texts alone. Without those before a quote, a quote begins or ends a text.
    marks = payload.replace(b"\\\\", b"").replace(b'\\"', b"").translate(_SQUARE, _NO_MARKS)
    if marks.count(b'"') > 4 * most:  # a text or two for each value
        raise _too_many(most)
    marks = b"".join(marks.split(b'"')[::2])
    if marks.count(b"[") + marks.count(b",") >= most:
        raise _too_many(most)
    marks = marks.replace(b",", b"")
    for _ in range(depth):
        if b"[]" not in marks:
            return
        marks = marks.replace(b"[]", b"")  # the innermost level
    if b"[]" in marks:
        raise TooDeep(f"nested more than {depth} deep")


def _too_many(most: int) -> TooMany:
    return TooMany(f"more than {most} values")


def bounded(payload: bytes, depth: int, most: int) -> Any:
    """As `loads`, of JSON within the bounds of `check`.

    Raises:
        ValueError: as `loads`, and `TooMuch`.
    """
    check(payload, depth, most)
    return loads(payload)


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
