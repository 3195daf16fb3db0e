"""How much a worker may put through, and how often it may break a rule."""

from __future__ import annotations

import pytest

from postroom.gateway.limits import CUT_OFF, FLOOD, VIOLATION, RateLimit, Violations
from postroom.gateway.port import Rates


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.requirement("attack-flood-slowed")
def test_ten_seconds_worth_may_come_at_once_and_what_is_more_waits():
    clock = Clock()
    rate_limit = RateLimit(Rates(messages=100, bytes=0), clock)

    assert rate_limit.take(1000, 10**12) == 0
    assert rate_limit.take(50, 0) == pytest.approx(0.5)
    clock.now += 0.5
    assert rate_limit.take(0, 0) == 0
    clock.now += 100
    assert rate_limit.take(1000, 0) == 0


def test_bytes_are_limited_like_messages():
    rate_limit = RateLimit(Rates(messages=0, bytes=10), Clock())

    assert rate_limit.take(10**6, 120) == pytest.approx(2.0)


@pytest.mark.requirement("attack-flood-slowed")
def test_a_flood_of_ten_seconds_is_told_of_each_further_second():
    clock = Clock()
    rate_limit = RateLimit(Rates(messages=10, bytes=0), clock)
    counted = []
    for _ in range(30):  # each half second, as much as that half second brings back
        wait = rate_limit.take(105 if clock.now == 1000.0 else 5, 0)
        if rate_limit.flooded():
            counted.append(clock.now - 1000.0)
        clock.now += wait

    assert counted == pytest.approx([10.0, 11.0, 12.0, 13.0, 14.0])


def test_a_flood_that_ends_in_time_is_forgiven():
    clock = Clock()
    rate_limit = RateLimit(Rates(messages=10, bytes=0), clock)
    for _ in range(5):
        rate_limit.take(180, 0)
        assert not rate_limit.flooded()
        clock.now += 20


@pytest.mark.requirement("attack-flood-slowed")
def test_an_hour_brings_back_what_may_be_stored():
    clock = Clock()
    rate_limit = RateLimit(Rates(stored_bytes=3600), clock)

    assert rate_limit.store(3600)
    assert not rate_limit.store(1)
    clock.now += 10
    assert rate_limit.store(10)
    assert not rate_limit.store(1)


@pytest.mark.requirement("attack-flood-slowed")
def test_ten_seconds_worth_of_records_may_be_stored_at_once_and_what_is_more_waits():
    clock = Clock()
    rate_limit = RateLimit(Rates(messages=0, bytes=0, stored_bytes=0, records=20), clock)

    assert all(rate_limit.store(1) for _ in range(200))
    assert rate_limit.debt() == 0
    assert rate_limit.store(1)
    assert rate_limit.debt() == pytest.approx(1 / 20)
    clock.now += 1
    assert rate_limit.debt() == 0


def test_what_is_refused_is_no_record():
    rate_limit = RateLimit(Rates(messages=0, bytes=0, stored_bytes=10, records=1), Clock())

    assert not any(rate_limit.store(11) for _ in range(100))
    assert rate_limit.debt() == 0


def _violations(clock: Clock, most: int = 3) -> tuple[Violations, list[str]]:
    told: list[str] = []
    cut = lambda: told.append("cut")  # noqa: E731
    return Violations(most, lambda kind, _text: told.append(kind), cut, clock), told


@pytest.mark.requirement("attack-flood-slowed")
def test_the_last_of_too_many_violations_cuts_off_once():
    violations, told = _violations(Clock())
    for _ in range(5):
        violations.offend("x")

    assert told == [VIOLATION, CUT_OFF, "cut"]
    assert violations.barred
    assert violations.count == 3


@pytest.mark.requirement("attack-flood-slowed")
def test_violations_that_are_ten_minutes_apart_do_not_add_up():
    clock = Clock()
    violations, told = _violations(clock)
    for _ in range(9):
        violations.offend("x")
        clock.now += 301

    assert told == [VIOLATION] * 9
    assert not violations.barred


@pytest.mark.requirement("attack-flood-slowed")
def test_who_is_held_back_however_long_is_told_of_once_a_minute_and_never_cut_off():
    clock = Clock()
    violations, told = _violations(clock)
    for _ in range(3600):
        violations.warn("x")
        clock.now += 1

    assert told == [FLOOD] * 60
    assert not violations.barred
    assert violations.count == 0


def test_one_alert_a_minute_is_enough():
    clock = Clock()
    violations, told = _violations(clock, most=100)
    for _ in range(60):
        violations.offend("x")
        clock.now += 2

    assert told == [VIOLATION] * 2
