"""One reader and one writer of JSON: fast where the two libraries agree, and as strict as the stricter one."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom_a2a import strict_json

NUMBERS = (
    st.integers() | st.integers(2**62, 2**66) | st.floats(allow_nan=False, allow_infinity=False)
)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


@given(VALUES)
def test_what_is_written_is_read_back_and_is_what_python_reads(value: object):
    payload = strict_json.dumps(value)

    assert strict_json.loads(payload) == value
    assert json.loads(payload) == value


@given(VALUES)
def test_what_python_writes_is_read_as_it_is(value: object):
    assert strict_json.loads(json.dumps(value).encode()) == value


@pytest.mark.parametrize("number", [2**64, -(2**63) - 1, 10**30, 2**64 - 1, -(2**63)])
def test_an_integer_of_any_size_stays_exact(number: int):
    assert strict_json.loads(b'{"n": [%d]}' % number) == {"n": [number]}
    assert strict_json.dumps({"n": number}) == b'{"n":%d}' % number


@pytest.mark.parametrize(
    "text",
    [
        "NaN",
        "[Infinity]",
        "-Infinity",
        "1e400",
        '{"long": 12345678901234567890, "far": 1e400}',
        '{"long": 12345678901234567890, "none": NaN}',
        r'"\ud800"',
        r'{"long": 12345678901234567890, "half": "\udc00"}',
        "",
        "{",
        "[] x",
        "01",
        "[1,]",
        '{"a": 1,}',
        "'a'",
        '"\n"',
        "[" * 5000,
        "[" * 5000 + "]" * 5000,
        "[" * 5000 + "1" * 20 + "]" * 5000,
    ],
)
def test_what_is_not_json_is_refused(text: str):
    with pytest.raises(ValueError):
        strict_json.loads(text.encode())


@pytest.mark.parametrize(
    "payload", [b'"\xff"', b"\xef\xbb\xbf{}", '"a"'.encode("utf-16"), b'"\xed\xa0\x80"']
)
def test_bytes_that_are_not_utf8_are_refused(payload: bytes):
    with pytest.raises(ValueError):
        strict_json.loads(payload)


def test_of_a_name_that_comes_twice_the_last_value_counts():
    assert strict_json.loads(b'{"a": 1, "a": 2}') == {"a": 2}


@pytest.mark.parametrize("value", [math.nan, math.inf, {"a": [None, -math.inf]}])
def test_a_number_that_is_not_finite_is_not_written(value: object):
    with pytest.raises(ValueError, match="JSON"):
        strict_json.dumps(value)


@dataclasses.dataclass
class Thing:
    name: str = ""


@pytest.mark.parametrize("value", [b"bytes", {1, 2}, object(), Thing(), [Thing()]])
def test_what_has_no_form_in_json_is_not_written(value: object):
    with pytest.raises(TypeError):
        strict_json.dumps(value)


def test_a_lone_surrogate_is_written_as_a_question_mark():
    assert strict_json.dumps({"a": "x\ud800y"}) == b'{"a":"x?y"}'


def test_a_null_is_a_null():
    assert strict_json.dumps({"a": None, "b": "null"}) == b'{"a":null,"b":"null"}'


def test_a_value_that_is_nested_deep_is_written():
    value: list[object] = []
    for _ in range(300):
        value = [value]

    assert strict_json.dumps(value) == b"[" * 301 + b"]" * 301
