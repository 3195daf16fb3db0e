"""Instants on the wire."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from postroom.errors import InvalidInput, ProtocolViolation
from postroom_a2a.times import format_time, parse_time

YEAR_1 = -62_135_596_800.0
YEAR_9999 = 253_402_300_799.0


@pytest.mark.requirement("mend-times-texts")
def test_an_instant_is_written_in_utc_with_milliseconds():
    assert format_time(1_769_860_800.0) == "2026-01-31T12:00:00.000Z"


@given(st.floats(YEAR_1, YEAR_9999))
def test_an_instant_survives_the_wire_to_the_millisecond(seconds: float):
    # A float has steps of 30 microseconds at the far ends of the calendar.
    assert abs(parse_time(format_time(seconds)) - seconds) <= 0.00102


def test_a_time_in_another_zone_is_the_same_instant():
    assert parse_time("2026-01-31T14:00:00+02:00") == 1_769_860_800.0


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "2026-01-31",
        "2026-01-31T12:00:00",
        "2026-02-30T12:00:00Z",
        "2026-01-31T12:00:00Z\n",
        "0001-01-01T00:00:00+23:59",
        "9999-12-31T23:59:59-23:59",
    ],
)
def test_what_is_no_instant_in_utc_is_a_violation(text: str):
    with pytest.raises(ProtocolViolation):
        parse_time(text)


@given(
    st.text() | st.from_regex(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d([+-]\d\d:\d\d|Z)", fullmatch=True)
)
@example("0001-01-01T00:00:00+00:01")
def test_any_text_is_an_instant_that_can_be_written_again_or_a_violation(text: str):
    try:
        instant = parse_time(text)
    except ProtocolViolation:
        return
    assert math.isclose(parse_time(format_time(instant)), instant, rel_tol=0, abs_tol=0.00102)


@pytest.mark.parametrize("seconds", [math.inf, -math.inf, math.nan, 1e300, -1e12, YEAR_9999 + 2])
def test_an_instant_that_no_calendar_has_is_refused(seconds: float):
    with pytest.raises(InvalidInput):
        format_time(seconds)
