"""JSON as ECMAScript's `JSON.stringify` writes it and its lenient readers read it (the wire of `a2a-nats/1`).

Python differs in numbers (`1.0`, `1e-07`), in lone surrogates, and in the place of members whose names are integers.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any

import orjson

from postroom_a2a import strict_json

_INDEX = re.compile(r"0|[1-9][0-9]{0,9}")
_MAX_INDEX = 2**32 - 2
_SURROGATE = re.compile("[\ud800-\udfff]")
_SAFE = 2**53
_BOM = "\ufeff"

quoted = json.encoder.encode_basestring
"""A text as JSON writes it, quotes and all."""


def dumps(value: Any) -> bytes:
    """`value` (dicts, lists, str, int, float, bool, None) as UTF-8; members in their order, but indices first."""
    if type(value) is str or _same(value):
        try:
            return orjson.dumps(value)
        except TypeError:  # half of a character, or nested deeper than orjson goes
            pass
    text = "".join(_write(value))
    try:
        return text.encode()
    except UnicodeEncodeError:
        return _SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", text).encode()


def loads(payload: bytes) -> Any:
    """The value in `payload`; bytes that are not UTF-8 become U+FFFD, and a byte order mark is dropped.

    Raises:
        ValueError: `payload` is not JSON, is nested too deep, or has a number beyond the range of a double.
    """
    try:
        return strict_json.loads(payload)
    except ValueError:  # a fault, or what only lenient readers take
        pass
    try:
        return _decode(payload.decode("utf-8", "replace").removeprefix(_BOM))
    except RecursionError as error:
        raise ValueError("nested too deep") from error


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError("a number is beyond the range of a double")
    return number


# Made once: `json.loads` makes a decoder for each call with an option.
_decode = json.JSONDecoder(parse_constant=_no_constant, parse_float=_finite).decode


def _same(value: Any) -> bool:
    """Whether Python's own encoder writes `value` the same."""
    kind = type(value)
    if kind is str or value is None or kind is bool:
        return True
    if kind is dict:
        return all(not name[:1].isdecimal() and _same(each) for name, each in value.items())
    if kind is list:
        return all(map(_same, value))
    return kind is int and -_SAFE <= value <= _SAFE


def _write(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield quoted(value)
    elif value is None or isinstance(value, bool):
        yield {None: "null", True: "true", False: "false"}[value]
    elif isinstance(value, (int, float)):
        yield number(value)
    elif isinstance(value, dict):
        mark = "{"
        for name, each in _ordered(value).items():
            yield f"{mark}{quoted(name)}:"
            yield from _write(each)
            mark = ","
        yield "{}" if mark == "{" else "}"
    elif isinstance(value, (list, tuple)):
        mark = "["
        for each in value:
            yield mark
            yield from _write(each)
            mark = ","
        yield "[]" if mark == "[" else "]"
    else:
        raise TypeError(f"{type(value).__name__} has no form in JSON")


def _ordered(members: dict[str, Any]) -> dict[str, Any]:
    """Members as JavaScript enumerates them: array indices first, in their order, then the rest in theirs."""
    indices = sorted((name for name in members if _is_index(name)), key=int)
    return {name: members[name] for name in indices} | members if indices else members


def _is_index(name: str) -> bool:
    return _INDEX.fullmatch(name) is not None and int(name) <= _MAX_INDEX


def number(value: float) -> str:
    """A number as ECMAScript prints it (ECMA-262, Number::toString); infinity and NaN are null."""
    try:
        double = float(value)
    except OverflowError:
        return "null"
    if not math.isfinite(double):
        return "null"
    if double == 0:
        return "0"
    sign = "-" if double < 0 else ""
    digits, point = _decimal(abs(double))
    if len(digits) <= point <= 21:
        return sign + digits.ljust(point, "0")
    if 0 < point <= 21:
        return f"{sign}{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    mantissa = f"{digits[0]}.{digits[1:]}" if len(digits) > 1 else digits
    return f"{sign}{mantissa}e{point - 1:+d}"


def _decimal(double: float) -> tuple[str, int]:
    """The shortest digits that name `double`, and how many of them stand before the point."""
    mantissa, _, exponent = f"{double!r}".partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    point = len(whole) if whole != "0" else -(len(fraction) - len(fraction.lstrip("0")))
    return digits.rstrip("0"), point + int(exponent or 0)
