"""The rate of a caller: never more than it may be, never less."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.protocol.rates import Rate

RATES = st.floats(min_value=0.01, max_value=10_000)
BURSTS = st.integers(min_value=1, max_value=1000)
GAPS = st.lists(st.floats(min_value=0, max_value=30), min_size=1, max_size=60)
STARTS = st.floats(min_value=0, max_value=1e7)


@pytest.mark.requirement("caller-limits")
@given(RATES, BURSTS, GAPS, STARTS)
def test_in_no_span_of_time_more_comes_than_the_burst_and_the_rate(
    rate: float, burst: int, gaps: list[float], start: float
) -> None:
    limit, now, taken = Rate(rate, burst, start), start, []
    for gap in gaps:
        now += gap / rate
        if limit.covers(1.0, now):
            taken.append(now)
    for first, begin in enumerate(taken):
        for last in range(first, len(taken)):
            allowed = burst + rate * (taken[last] - begin)
            assert last - first + 1 <= allowed + 1e-3


@pytest.mark.requirement("caller-limits")
@given(
    RATES,
    BURSTS,
    st.lists(st.floats(min_value=1.0, max_value=9.0), min_size=1, max_size=60),
    st.floats(min_value=0, max_value=1000),
)
def test_who_keeps_to_the_rate_is_never_refused(
    rate: float, burst: int, gaps: list[float], start: float
) -> None:
    limit, now = Rate(rate, burst, start), start
    for gap in gaps:
        assert limit.covers(1.0, now)
        now += max(gap / rate, 1e-9) * (1 + 1e-9)


@given(RATES, BURSTS, st.integers(min_value=0, max_value=1000))
def test_the_wait_that_is_told_is_the_one_that_helps(rate: float, burst: int, taken: int) -> None:
    limit = Rate(rate, burst, 0.0)
    for _ in range(min(taken, burst)):
        assert limit.covers(1.0, 0.0)

    wait = limit.wait(1.0, 0.0)
    if wait:
        assert not limit.covers(1.0, wait * 0.99)
    assert limit.covers(1.0, wait)
    assert math.isclose(wait, 1 / rate if taken >= burst else 0.0, abs_tol=1e-9)


def test_a_refused_amount_takes_nothing() -> None:
    limit = Rate(1.0, 5.0, 0.0)

    assert not limit.covers(6.0, 0.0)
    assert limit.covers(5.0, 0.0)
    assert not limit.full(4.9)
    assert limit.full(5.0)


def test_a_rate_of_nothing_is_no_limit() -> None:
    limit = Rate(0.0, 0.0, 0.0)

    assert limit.covers(1e9, 0.0)
    assert (limit.wait(1e9, 0.0), limit.take(1e9, 0.0)) == (0.0, 0.0)
