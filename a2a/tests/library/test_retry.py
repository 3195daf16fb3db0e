"""The one back-off."""

from __future__ import annotations

from postroom_a2a.retry import Backoff, RetryPolicy


def test_pauses_grow_to_their_cap_with_full_jitter():
    longest = RetryPolicy(base=0.1, cap=0.5, uniform=lambda _, most: most)
    assert [round(longest.delay(n), 3) for n in (1, 2, 3, 4, 99)] == [0.1, 0.2, 0.4, 0.5, 0.5]
    shortest = RetryPolicy(base=0.1, cap=0.5, uniform=lambda least, _: least)
    assert shortest.delay(3) == 0


def test_a_success_makes_the_pauses_short_again():
    backoff = Backoff(0.1, 100.0)
    for ceiling in (0.1, 0.2, 0.4, 0.8):
        assert 0 <= backoff.next() <= ceiling
    backoff.reset()
    assert backoff.next() <= 0.1
