"""Canonical JSON against the RFC's own examples."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.directory.card_signatures import MAX_INTEGER, canonical
from postroom.errors import InvalidInput

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-MAX_INTEGER, MAX_INTEGER) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@pytest.mark.requirement("a2a-http-card")
def test_keys_are_ordered_as_in_the_example_of_the_rfc():
    # RFC 8785, section 3.2.3.
    value = {
        "\u20ac": "Euro Sign",
        "\r": "Carriage Return",
        "\ufb33": "Hebrew Letter Dalet With Dagesh",
        "1": "One",
        "\U0001f600": "Emoji: Grinning Face",
        "\u0080": "Control",
        "\u00f6": "Latin Small Letter O With Diaeresis",
    }

    assert list(json.loads(canonical(value)).values()) == [
        "Carriage Return",
        "One",
        "Control",
        "Latin Small Letter O With Diaeresis",
        "Euro Sign",
        "Emoji: Grinning Face",
        "Hebrew Letter Dalet With Dagesh",
    ]


@pytest.mark.requirement("a2a-http-card")
def test_strings_and_literals_are_written_as_in_the_example_of_the_rfc():
    # RFC 8785, section 3.2.2, without its numbers.
    value = {"string": "\u20ac$\u000f\u000aA'B\u0022\u005c\\\"/", "literals": [None, True, False]}

    expected = r'{"literals":[null,true,false],"string":"€$\u000f\nA' + r"""'B\"\\\\\"/"}"""
    assert canonical(value).decode() == expected


@pytest.mark.parametrize(
    "value", [1.5, {"a": [0.0]}, MAX_INTEGER + 1, "\ud800", {"\udfff": 1}, {1: 2}, b"x"]
)
def test_what_has_no_exact_form_is_refused(value: Any):
    with pytest.raises(InvalidInput):
        canonical(value)


def test_nesting_without_end_is_refused():
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]

    with pytest.raises(InvalidInput):
        canonical(value)


@given(VALUES)
def test_the_form_keeps_the_value_and_is_its_own_form(value: Any):
    read = json.loads(canonical(value))

    assert read == value
    assert canonical(read) == canonical(value)
