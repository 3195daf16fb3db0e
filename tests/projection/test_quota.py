"""What each of many may cause within a window of time."""

from __future__ import annotations

from postroom.projection.following import Quota


def test_a_window_that_has_expired_takes_no_memory():
    quota = Quota(most=2, window=10.0)
    for number in range(100):
        assert quota.take(f"worker {number}", now=float(number))
    assert len(quota._counts) <= 10


def test_a_window_begins_with_the_first_and_counts_to_its_end():
    quota = Quota(most=2, window=10.0)
    assert [quota.take("a", now) for now in (0.0, 5.0, 9.9, 10.0, 11.0)] == [True] * 2 + [False] + [
        True
    ] * 2
