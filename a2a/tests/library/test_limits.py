"""The limit on how much one caller has under way."""

from __future__ import annotations

import pytest

from postroom_a2a.bounds import ConcurrencyLimit


class Busy(Exception):
    pass


def test_a_caller_over_the_limit_is_refused_and_another_is_not() -> None:
    limit = ConcurrencyLimit(2, Busy)
    with limit.slot("a"), limit.slot("a"):
        with pytest.raises(Busy), limit.slot("a"):
            pass
        with limit.slot("b"):
            pass


def test_work_that_failed_is_not_under_way_any_more() -> None:
    limit = ConcurrencyLimit(1, Busy)
    with pytest.raises(ValueError, match="failed"), limit.slot():
        raise ValueError("failed")

    with limit.slot():
        pass
