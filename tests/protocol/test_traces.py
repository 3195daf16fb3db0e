"""W3C trace context: what is taken, and where it is kept."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.protocol.content import Content
from postroom.protocol.traces import TRACEPARENT, checked, trace_of, traced

GOOD = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.mark.parametrize(
    "text",
    [
        "",
        GOOD + "-more",
        GOOD + "\n",
        GOOD.upper(),
        GOOD.replace("00-4", "ff-4", 1),
        f"00-{'0' * 32}-00f067aa0ba902b7-01",
        f"00-4bf92f3577b34da6a3ce929d0e0e4736-{'0' * 16}-01",
        GOOD[:-1],
        None,
        1,
        [GOOD],
    ],
)
def test_what_is_malformed_counts_as_absent(text: object) -> None:
    assert checked(text) == ""
    assert trace_of({"metadata": {TRACEPARENT: text}}) == ""


def test_a_later_version_is_read_as_far_as_it_is_known() -> None:
    assert checked(GOOD) == GOOD
    later = GOOD.replace("00-4", "01-4", 1)[:-2]
    assert checked(later + "ff-what-ever") == GOOD
    assert checked(later + "02") == GOOD[:-2] + "00"
    assert checked(later + "01-" + "x" * 300) == ""


@given(st.text())
def test_any_text_is_a_trace_or_nothing(text: str) -> None:
    assert checked(text) in ("", text)


def test_a_message_keeps_its_other_metadata() -> None:
    message = {"parts": [], "metadata": {"x": 1}}
    assert traced(message, "") is message
    assert traced(message, GOOD)["metadata"] == {"x": 1, TRACEPARENT: GOOD}
    assert trace_of(traced({"metadata": None}, GOOD)) == GOOD
    assert trace_of({"metadata": "x"}) == ""


def test_content_belongs_to_the_first_trace_that_it_was_given() -> None:
    other = GOOD.replace("4bf9", "5bf9")
    said = Content.of_text("hello", subject="about").traced(GOOD)
    assert trace_of(said.message("a" * 32)) == GOOD
    assert said.traced(other) is said
    assert Content.of_text("hello").traced("") == Content.of_text("hello")
