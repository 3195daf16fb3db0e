"""JSON of the wire `a2a-nats/1`: written as ECMAScript does, read as its lenient readers do."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom_a2a.ecma_json import dumps, loads

texts = st.text(st.characters(exclude_categories=[]), max_size=4)  # halves of characters, too
words = texts.filter(lambda name: not name[:1].isdecimal())
trees = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)


@given(trees)
def test_what_both_write_alike_is_written_as_by_pythons_module(value: Any) -> None:
    expected = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    halves = re.compile("[\ud800-\udfff]")
    escaped = halves.sub(lambda found: f"\\u{ord(found[0]):04x}", expected)

    assert dumps(value) == escaped.encode()
    assert loads(dumps(value)) == value


@given(
    st.recursive(
        st.floats(allow_nan=False, allow_infinity=False) | st.integers(), st.lists, max_leaves=4
    )
)
def test_numbers_are_read_as_by_pythons_module(value: Any) -> None:
    text = json.dumps(value).encode()
    found = loads(text)

    assert repr(found) == repr(json.loads(text))


@pytest.mark.parametrize(
    "payload, value",
    [
        (b'\xef\xbb\xbf{"a":1}', {"a": 1}),
        (b'"\xff"', "\ufffd"),
        (b'"\\ud800"', "\ud800"),
        (b'{"id":123456789012345678901234567890}', {"id": 123456789012345678901234567890}),
        (b'{"a":1,"a":2}', {"a": 2}),
    ],
)
def test_lenient_readers_take(payload: bytes, value: Any) -> None:
    assert loads(payload) == value


@pytest.mark.parametrize(
    "payload", [b"", b"NaN", b"[Infinity]", b"1e400", b"{", b"[1,]", b"[" * 100_000, b"'a'"]
)
def test_nobody_takes(payload: bytes) -> None:
    with pytest.raises(ValueError):
        loads(payload)


def test_numbers_and_indices_are_those_of_ecmascript() -> None:
    value = {"b": 1.0, "10": 1e-7, "9": 1e21, "a": 2**60, "\ud83d": -0.0}

    assert dumps(value) == b'{"9":1e+21,"10":1e-7,"b":1,"a":1152921504606847000,"\\ud83d":0}'
